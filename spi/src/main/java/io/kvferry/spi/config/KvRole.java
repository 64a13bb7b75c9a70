// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.config;

/// What an engine does with KV blocks or encoder outputs: makes them, uses them, or both.
public enum KvRole {
    PRODUCER,
    CONSUMER,
    BOTH;

    public boolean produces() {
        return this != CONSUMER;
    }

    public boolean consumes() {
        return this != PRODUCER;
    }
}
