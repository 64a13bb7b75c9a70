// SPDX-License-Identifier: Apache-2.0
/// Which RDMA devices of this host to use, by the rules of vLLM's launch scripts for Mooncake.
@NullMarked
package io.kvferry.backend.mooncake.rdma;

import org.jspecify.annotations.NullMarked;
