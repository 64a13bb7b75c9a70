// SPDX-License-Identifier: Apache-2.0
/// The P/D router behind `kvferry route`: it sends each request to a prefill and a decode instance
/// and carries the `kv_transfer_params` between them. It needs no engine and works with any server
/// that speaks vLLM's HTTP API.
@NullMarked
package io.kvferry.serving.route;

import org.jspecify.annotations.NullMarked;
