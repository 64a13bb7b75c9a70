// SPDX-License-Identifier: Apache-2.0
/// `/metrics` of server and router, on Prometheus' own client library. Names are vLLM's where vLLM
/// has one for the same thing, else they begin with `kvferry_`.
@NullMarked
package io.kvferry.serving.metrics;

import org.jspecify.annotations.NullMarked;
