// plan CHECKPOINT: a control loop at control rate. One stream for an episode; each step the server
// samples a candidate pool and certifies whether noise on the camera can change the plan.
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "acpc/v1/diagnostic_service.grpc.pb.h"

namespace {

constexpr int kHistory = 3, kSide = 32, kWidth = 10, kHorizon = 5, kSteps = 5, kPools = 3;

acpc::v1::Tensor tensor(acpc::v1::Dtype dtype, const std::vector<int64_t>& shape,
                        const std::string& bytes) {
  acpc::v1::Tensor made;
  made.set_dtype(dtype);
  for (int64_t extent : shape) made.add_shape(extent);
  made.set_data(bytes);
  return made;
}

acpc::v1::Tensor frames(std::vector<int64_t> shape, unsigned char grey) {
  size_t bytes = 1;
  for (int64_t extent : shape) bytes *= extent;
  return tensor(acpc::v1::DTYPE_UINT8, shape, std::string(bytes, static_cast<char>(grey)));
}

acpc::v1::Tensor blocks(int64_t count, float value) {
  // The contract is little-endian, as x86 and ARM are.
  const std::vector<float> values(count * kWidth, value);
  const auto* bytes = reinterpret_cast<const char*>(values.data());
  return tensor(acpc::v1::DTYPE_FLOAT32, {count, kWidth},
                std::string(bytes, values.size() * sizeof(float)));
}

using Stream = grpc::ClientReaderWriter<acpc::v1::PlanRequest, acpc::v1::PlanResponse>;

/// Sends one message and takes its answer; false once the stream has ended.
bool asked(Stream& stream, const acpc::v1::PlanRequest& request, acpc::v1::PlanResponse& answer) {
  return stream.Write(request) && stream.Read(&answer);
}

/// A moment of the planner: what the camera shows now, the goal, and what may change.
acpc::v1::PlanRequest started(const std::string& checkpoint, unsigned char grey) {
  acpc::v1::PlanRequest request;
  acpc::v1::PlanStart& start = *request.mutable_start();
  start.mutable_checkpoint()->set_name(checkpoint);
  *start.mutable_history() = frames({kHistory, kSide, kSide, 3}, grey);
  *start.mutable_past_blocks() = blocks(kHistory - 1, 0);
  *start.mutable_goal()->mutable_frame() = frames({kSide, kSide, 3}, 64);
  start.mutable_perturbations()->add_specs()->mutable_gaussian_noise()->set_sigma(0.08);
  start.set_elite_count(8);
  return request;
}

acpc::v1::PlanRequest pool(int iteration) {
  acpc::v1::PlanRequest request;
  acpc::v1::PlanPool& made = *request.mutable_pool();
  made.set_iteration(iteration);
  auto& proposal = *made.mutable_proposal();  // or candidates of your own
  *proposal.mutable_mean() = blocks(kHorizon, 0);
  *proposal.mutable_std() = blocks(kHorizon, 1);
  proposal.set_candidates(64);
  proposal.set_seed(iteration);
  return request;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: plan CHECKPOINT\n";
    return 2;
  }
  const char* target = std::getenv("ACPC_TARGET");
  auto channel = grpc::CreateChannel(target ? target : "localhost:50051",
                                     grpc::InsecureChannelCredentials());
  auto stub = acpc::v1::DiagnosticService::NewStub(channel);
  grpc::ClientContext context;
  auto stream = stub->Plan(&context);

  acpc::v1::PlanResponse answer;
  bool open = true;
  for (int step = 0; open && step < kSteps; ++step) {
    const auto began = std::chrono::steady_clock::now();
    open = asked(*stream, started(argv[1], 128 + step), answer);
    for (int iteration = 0; open && iteration < kPools; ++iteration)
      open = asked(*stream, pool(iteration), answer);
    if (!open) break;
    const std::chrono::duration<double, std::milli> took =
        std::chrono::steady_clock::now() - began;
    const auto& certificate = answer.certificate().certificate();
    std::cout << "step " << step << ": winner " << certificate.clean_winner() << ", certified "
              << certificate.top1_certified_fraction() << ", " << took.count() << " ms\n";
  }
  stream->WritesDone();
  const grpc::Status status = stream->Finish();
  if (status.ok()) return 0;
  std::cerr << status.error_code() << ": " << status.error_message() << "\n";
  return 1;
}
