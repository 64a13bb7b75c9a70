// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.kv;

/// A scheduler half that needs steps even when no request is live: to send a late answer, to renew
/// a lease. Open holds, leases and loads keep the engine stepping anyway.
public interface PendingWork {
    boolean hasPendingWork();
}
