// What both examples share: services from the descriptor set of a release, and errors in words.
import { readFileSync } from "node:fs";
import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";

const contract = new URL("../../../proto/acpc/v1/acpc.binpb", import.meta.url);
const definitions = loader.loadFileDescriptorSetFromBuffer(readFileSync(contract), {
  keepCase: true,
  enums: String,
  longs: String, // 64-bit integers do not fit a JavaScript number
  defaults: true,
  oneofs: true,
});
const services = grpc.loadPackageDefinition(definitions).acpc.v1;
const metadata = new grpc.Metadata();
if (process.env.ACPC_API_KEY) metadata.set("authorization", `Bearer ${process.env.ACPC_API_KEY}`);

/** A client of one service, such as "DiagnosticService". A token needs TLS: set ACPC_TLS_CA. */
export function connect(service) {
  const ca = process.env.ACPC_TLS_CA;
  const credentials = ca
    ? grpc.credentials.createSsl(readFileSync(ca))
    : grpc.credentials.createInsecure();
  return new services[service](process.env.ACPC_TARGET ?? "localhost:50051", credentials);
}

/** The answer of a unary call. */
export function call(client, method, request, seconds = 60) {
  const deadline = new Date(Date.now() + 1000 * seconds);
  return new Promise((resolve, reject) =>
    client[method](request, metadata, { deadline }, (error, answer) =>
      error ? reject(error) : resolve(answer),
    ),
  );
}

/** Every message of a call whose answer is a stream. */
export const stream = (client, method, request) => client[method](request, metadata);

/** The message inside a google.protobuf.Any. */
export const unpack = (any) => definitions[any.type_url.split("/").pop()].deserialize(any.value);

/** A typed array as the contract's Tensor: little-endian, C order. */
export const tensor = (dtype, shape, array) => ({
  dtype,
  shape,
  data: Buffer.from(array.buffer, array.byteOffset, array.byteLength),
});

/** Runs an example; a failed call is told in a line and ends with exit code 1. */
export function run(main) {
  main().catch((error) => {
    console.error(error.code === undefined ? error : `${grpc.status[error.code]}: ${error.details}`);
    process.exitCode = 1;
  });
}
