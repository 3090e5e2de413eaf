"""The ONNX container: files to and from `RawModel`, with no operation knowledge.

`reader.read` and `writer.write` are the entry points; `source` opens files, `graphs` and
`attributes` decode, `tensors` and `external` hold data, `type_protos` the types of values and
`structure` checks names and order.
"""
