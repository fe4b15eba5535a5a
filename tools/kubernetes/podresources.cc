// SPDX-License-Identifier: Apache-2.0
// The code that is generated from podresources.proto.
#include <podresources.grpc.pb.cc>
#include <podresources.pb.cc>
