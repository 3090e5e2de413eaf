// Runs a WebAssembly program in Node: its file, then its arguments; files are those of the current folder.
import { readFile } from "node:fs/promises";
import { WASI } from "node:wasi";

const args = process.argv.slice(2);
const wasi = new WASI({ version: "preview1", args, preopens: { ".": process.cwd() }, returnOnExit: true });
const module = await WebAssembly.compile(await readFile(args[0]));
process.exit(wasi.start(await WebAssembly.instantiate(module, wasi.getImportObject())));
