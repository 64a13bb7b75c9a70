// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.config;

/// Role of an engine towards KV blocks or encoder outputs: produces them, consumes them, or both.
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
