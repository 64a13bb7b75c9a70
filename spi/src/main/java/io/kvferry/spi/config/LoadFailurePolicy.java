// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.config;

/// Treatment of a request whose load failed.
public enum LoadFailurePolicy {
    /// The request ends with an error. vLLM's default.
    FAIL,
    /// The engine computes what is missing. One-shot per (request, source): a source that broke its
    /// promise is not asked again for the same request.
    RECOMPUTE
}
