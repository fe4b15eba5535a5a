// SPDX-License-Identifier: Apache-2.0
// The plugin's server against a kubelet of the test's own, by gRPC over unix sockets.
#include "tools/kubernetes/kubelet.h"

#include <deviceplugin.grpc.pb.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <podresources.grpc.pb.h>
#include <unistd.h>

#include <atomic>
#include <memory>

#include "shmctl/program/temp_folder.h"
#include "shmctl/program/wait.h"

namespace gpushare {
namespace {

class FakeKubelet final : public v1beta1::Registration::Service,
                          public v1::PodResourcesLister::Service {
 public:
  explicit FakeKubelet(const std::string& folder) : folder_(folder) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + folder + "/kubelet.sock", grpc::InsecureServerCredentials());
    builder.RegisterService(static_cast<v1beta1::Registration::Service*>(this));
    builder.RegisterService(static_cast<v1::PodResourcesLister::Service*>(this));
    server_ = builder.BuildAndStart();
  }
  grpc::Status Register(grpc::ServerContext*, const v1beta1::RegisterRequest* request,
                        v1beta1::Empty*) override {
    registered = *request;
    return request->version() == "v1beta1"
               ? grpc::Status::OK
               : grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "version");
  }
  grpc::Status List(grpc::ServerContext*, const v1::ListPodResourcesRequest*,
                    v1::ListPodResourcesResponse* answer) override {
    auto* pod = answer->add_pod_resources();
    pod->set_name("train");
    pod->set_namespace_("lab");
    auto* container = pod->add_containers();
    container->set_name("main");
    auto* devices = container->add_devices();
    devices->set_resource_name("gpushare.io/share");
    devices->add_device_ids("GPU-a.3");
    return grpc::Status::OK;
  }
  std::unique_ptr<v1beta1::DevicePlugin::Stub> plugin() const {
    return v1beta1::DevicePlugin::NewStub(grpc::CreateChannel(
        "unix:" + folder_ + "/" + registered.endpoint(), grpc::InsecureChannelCredentials()));
  }

  v1beta1::RegisterRequest registered;

 private:
  const std::string folder_;
  std::unique_ptr<grpc::Server> server_;
};

class KubeletTest : public ::testing::Test {
 protected:
  Resource resource() {
    return {.name = "gpushare.io/share",
            .endpoint = "share.sock",
            .allocate = [](const Resource::Ids& ids) -> Result<Allocation> {
              if (ids.size() > 2)
                return make_error(std::errc::invalid_argument, "allocate", "too many; allowed: 2");
              return Allocation{{{"COUNT", std::to_string(ids.size())}},
                                {{"/in", "/out"}},
                                {"/dev/null"},
                                {{"a", "b"}},
                                {"nvidia.com/gpu=GPU-a"}};
            },
            .prefer =
                [](const Resource::Ids& available, const Resource::Ids&, uint32_t size) {
                  return Resource::Ids(available.end() - size, available.end());
                },
            .before_start = [this](const Resource::Ids&) -> Result<> {
              return is_ready_ ? Result<>()
                               : make_error(std::errc::resource_unavailable_try_again, "start",
                                            "not yet");
            }};
  }
  std::string folder() const { return folder_.path(); }

  TempFolder folder_ = TempFolder::make("gpushare-kubelet-test").value();
  std::atomic<bool> is_ready_ = true;
};

TEST_F(KubeletTest, APluginRegistersAndAnswers) {
  FakeKubelet kubelet(folder());
  auto server = ResourceServer::start(folder(), resource());
  ASSERT_TRUE(server) << server.error().message();
  ASSERT_TRUE((*server)->register_it());
  EXPECT_EQ(kubelet.registered.resource_name(), "gpushare.io/share");
  EXPECT_TRUE(kubelet.registered.options().pre_start_required());
  EXPECT_TRUE(kubelet.registered.options().get_preferred_allocation_available());

  v1beta1::AllocateRequest request;
  request.add_container_requests()->add_devicesids("GPU-a.1");
  v1beta1::AllocateResponse answer;
  grpc::ClientContext one, two, three, four, five;
  ASSERT_TRUE(kubelet.plugin()->Allocate(&one, request, &answer).ok());
  ASSERT_EQ(answer.container_responses_size(), 1);
  const auto& container = answer.container_responses(0);
  EXPECT_EQ(container.envs().at("COUNT"), "1");
  EXPECT_EQ(container.annotations().at("a"), "b");
  EXPECT_EQ(container.mounts(0).container_path(), "/in");
  EXPECT_EQ(container.mounts(0).host_path(), "/out");
  EXPECT_TRUE(container.mounts(0).read_only());
  EXPECT_EQ(container.devices(0).host_path(), "/dev/null");
  ASSERT_EQ(container.cdi_devices_size(), 1);
  EXPECT_EQ(container.cdi_devices(0).name(), "nvidia.com/gpu=GPU-a");

  for (const char* id : {"GPU-a.2", "GPU-a.3"})
    request.mutable_container_requests(0)->add_devicesids(id);
  const grpc::Status refused = kubelet.plugin()->Allocate(&two, request, &answer);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(refused.error_message(), "too many; allowed: 2") << "what a user sees of it";

  v1beta1::PreferredAllocationRequest wish;
  auto* asked = wish.add_container_requests();
  for (const char* id : {"x.0", "x.1", "x.2"}) asked->add_available_deviceids(id);
  asked->set_allocation_size(2);
  v1beta1::PreferredAllocationResponse preferred;
  ASSERT_TRUE(kubelet.plugin()->GetPreferredAllocation(&three, wish, &preferred).ok());
  EXPECT_EQ(preferred.container_responses(0).deviceids(0), "x.1");

  v1beta1::PreStartContainerResponse started;
  EXPECT_TRUE(kubelet.plugin()->PreStartContainer(&four, {}, &started).ok());
  is_ready_ = false;
  EXPECT_EQ(kubelet.plugin()->PreStartContainer(&five, {}, &started).error_code(),
            grpc::StatusCode::UNAVAILABLE);
}

TEST_F(KubeletTest, DevicesAreSaidAtOnceAndWhenTheyChange) {
  FakeKubelet kubelet(folder());
  auto server = ResourceServer::start(folder(), resource());
  ASSERT_TRUE(server && (*server)->register_it());
  grpc::ClientContext context;
  const auto stub = kubelet.plugin();
  const auto stream = stub->ListAndWatch(&context, {});
  (*server)->set_devices({{"a.0", true}, {"a.1", true}});
  v1beta1::ListAndWatchResponse list;
  ASSERT_TRUE(stream->Read(&list));
  ASSERT_EQ(list.devices_size(), 2);
  EXPECT_EQ(list.devices(1).id(), "a.1");
  EXPECT_EQ(list.devices(1).health(), "Healthy");
  (*server)->set_devices({{"a.0", false}, {"a.1", true}});
  ASSERT_TRUE(stream->Read(&list));
  ASSERT_EQ(list.devices_size(), 2);
  EXPECT_EQ(list.devices(0).health(), "Unhealthy");
  EXPECT_EQ(list.devices(1).health(), "Healthy") << "each has its own";
  server->reset();  // with a stream open
  EXPECT_FALSE(stream->Read(&list));
  (void)stream->Finish();
}

TEST_F(KubeletTest, ANextKubeletIsRegisteredWithToo) {
  auto kubelet = std::make_unique<FakeKubelet>(folder());
  auto server = ResourceServer::start(folder(), resource());
  ASSERT_TRUE(server && (*server)->register_it());
  kubelet.reset();
  ::unlink((folder() + "/share.sock").c_str());  // as a kubelet does that starts
  FakeKubelet next(folder());
  server->reset();
  server = ResourceServer::start(folder(), resource());
  ASSERT_TRUE(server && (*server)->register_it());
  grpc::ClientContext context;
  v1beta1::DevicePluginOptions options;
  EXPECT_TRUE(next.plugin()->GetDevicePluginOptions(&context, {}, &options).ok());
}

TEST_F(KubeletTest, PodsDevicesAreListed) {
  const FakeKubelet kubelet(folder());
  const auto devices = list_pod_devices(folder() + "/kubelet.sock");
  ASSERT_TRUE(devices) << devices.error().message();
  ASSERT_EQ(devices->size(), 1U);
  EXPECT_EQ(
      devices->front().name_space + "/" + devices->front().pod + "/" + devices->front().container,
      "lab/train/main");
  EXPECT_EQ(devices->front().ids, std::vector<std::string>{"GPU-a.3"});
}

}  // namespace
}  // namespace gpushare
