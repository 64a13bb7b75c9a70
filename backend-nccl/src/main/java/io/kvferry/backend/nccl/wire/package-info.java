// SPDX-License-Identifier: Apache-2.0
/// What workers say to each other over the side channel: protocol 0 is vLLM's, protocol 1 is that
/// of kvferry.
@NullMarked
package io.kvferry.backend.nccl.wire;

import org.jspecify.annotations.NullMarked;
