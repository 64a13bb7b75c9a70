// SPDX-License-Identifier: Apache-2.0
/// Protocol 0: tensors to and from vLLM's P2pNcclEngine, one for each layer, over a communicator of
/// two ranks for each pair.
@NullMarked
package io.kvferry.backend.nccl.vllm;

import org.jspecify.annotations.NullMarked;
