// SPDX-License-Identifier: Apache-2.0
// The code that is generated from deviceplugin.proto.
#include <deviceplugin.grpc.pb.cc>
#include <deviceplugin.pb.cc>
