// SPDX-License-Identifier: Apache-2.0
/// P2pNcclConnector: a prefiller pushes KV to its decoder while it computes, or the decoder pulls
/// what the prefiller holds for it. Rank k of one engine talks to rank k of the other.
///
/// With protocol 1 the worker half runs two services on one thread:
/// [io.kvferry.backend.nccl.SendService] (what this rank prefilled) and
/// [io.kvferry.backend.nccl.ReceiveService] (what this rank is to decode). Both speak over the side
/// channel of `toolkit` and move bytes by a [io.kvferry.backend.nccl.plane.DataPlane]. With
/// protocol 0 it is [io.kvferry.backend.nccl.VllmWorker], over the package `vllm`.
@NullMarked
package io.kvferry.backend.nccl;

import org.jspecify.annotations.NullMarked;
