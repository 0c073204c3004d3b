// node compare.mjs CHECKPOINT [FRAMES SIZE WIDTH]: how far gaussian noise moves the future that a checkpoint predicts.
import { call, connect, run, tensor } from "./acpc.mjs";

run(async () => {
  const [name, ...shape] = process.argv.slice(2);
  if (!name) throw new Error("usage: node compare.mjs CHECKPOINT [FRAMES SIZE WIDTH]");
  const checkpoint = { name };
  const { model } = (await call(connect("CheckpointService"), "GetCheckpoint", { checkpoint }))
    .checkpoint;
  // Any comparison loads a checkpoint; only the role admin may have it loaded without one.
  if (!model && shape.length < 3)
    throw new Error(`${name} is not loaded, so give its frames, image size and action block width`);
  const [frames, size, width] = model
    ? [model.history, model.image_size, model.action_block_dim]
    : shape.map(Number);
  const horizon = 5;
  // A planner sends what its camera saw and what it would do; these are grey frames and no motion.
  const pixels = new Uint8Array(frames * size * size * 3).fill(128);
  const actions = new Float32Array((frames + horizon - 1) * width);
  const answer = await call(connect("DiagnosticService"), "ComparePair", {
    checkpoint,
    history: tensor("DTYPE_UINT8", [frames, size, size, 3], pixels),
    action_blocks: tensor("DTYPE_FLOAT32", [frames + horizon - 1, width], actions),
    perturbations: { specs: [{ gaussian_noise: { sigma: 0.08 } }], draws: 3, seed: 7 },
  });
  for (const { draw, acpc, step_distances: steps } of answer.results)
    console.log(`draw ${draw}: ACPC ${acpc.toPrecision(6)}, last step ${steps.at(-1).toPrecision(6)}`);
  console.log(`computed from checkpoint ${answer.receipt.checkpoint_digest}`);
});
