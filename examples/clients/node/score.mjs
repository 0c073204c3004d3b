// node score.mjs CHECKPOINT REFERENCE DATASET TASK: scores a checkpoint under blur, for a gate.
// Exits with 0 when the screen passed, 3 when it failed, 1 for an error.
import { call, connect, run, stream, unpack } from "./acpc.mjs";

run(async () => {
  const [name, reference, dataset, task] = process.argv.slice(2);
  if (!task) throw new Error("usage: node score.mjs CHECKPOINT REFERENCE DATASET TASK");
  const scoring = connect("ScoringService");
  const submitted = await call(scoring, "ScoreCheckpoint", {
    // The same id gives the same job, so that this call may be repeated.
    request_id: process.env.ACPC_REQUEST_ID ?? "",
    checkpoint: { name },
    reference: { name: reference },
    dataset: { dataset, task, count: Number(process.env.ACPC_ANCHORS ?? 100) },
    perturbation: { gaussian_blur: { kernel_size: 15 } },
  });
  let operation = submitted;
  for await (const seen of stream(scoring, "WatchOperation", { name: submitted.name })) {
    operation = seen.operation;
    const { progress, state } = unpack(operation.metadata);
    console.log(`${operation.name} ${state} ${progress.completed}/${progress.total}`);
  }
  if (operation.error) throw new Error(`${operation.name}: ${operation.error.message}`);
  const { checkpoint, verdict } = unpack(operation.response);
  console.log(`raw IR ${checkpoint.ir_raw}, SR ${checkpoint.sr}, of ${checkpoint.anchors} anchors`);
  console.log(JSON.stringify(verdict, null, 2));
  process.exitCode = verdict.outcome === "OUTCOME_PASSED" ? 0 : 3;
});
