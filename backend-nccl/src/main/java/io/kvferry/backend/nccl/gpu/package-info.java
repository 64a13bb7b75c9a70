// SPDX-License-Identifier: Apache-2.0
/// The `nccl` data plane: transfers between two processes over NCCL, by way of GPU memory.
///
/// [io.kvferry.backend.nccl.gpu.NcclPlane] has one [io.kvferry.backend.nccl.gpu.Link] for each
/// peer: a TCP connection for control messages and an NCCL communicator of two ranks. All calls of
/// NCCL and of the driver are made by one [io.kvferry.backend.nccl.gpu.GpuLoop], except aborts.
/// [io.kvferry.backend.nccl.gpu.TensorLanes] is what protocol 0 uses instead: whole tensors, and a
/// communicator for each peer.
@NullMarked
package io.kvferry.backend.nccl.gpu;

import org.jspecify.annotations.NullMarked;
