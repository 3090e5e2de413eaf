"""What operations are made of: their base, forms, signatures, attribute codecs, and what families share."""
