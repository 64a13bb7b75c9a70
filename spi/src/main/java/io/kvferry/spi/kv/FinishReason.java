// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.kv;

/// Why a request ended.
public enum FinishReason {
    /// It produced an end token or stop string.
    STOP,
    /// It reached its token limit; a prefill-only request ends this way.
    LENGTH,
    /// The client went away or cancelled.
    ABORT,
    /// It failed.
    ERROR
}
