// SPDX-License-Identifier: Apache-2.0
/// What the HTTP server and the router cost, beside a server that does nothing.
@NullMarked
package io.kvferry.benchmarks.http;

import org.jspecify.annotations.NullMarked;
