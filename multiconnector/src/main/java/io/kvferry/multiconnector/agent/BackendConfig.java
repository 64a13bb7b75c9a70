// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import java.util.Map;

/// A backend that an agent is to open.
///
/// @param name of its provider
/// @param priority backends of higher priority are preferred whatever the cost; 0 for no preference
/// @param options read strictly against the provider's schema
public record BackendConfig(String name, int priority, Map<String, Object> options) {
    public BackendConfig {
        options = Map.copyOf(options);
    }

    /// A backend without preference and with its default options.
    public static BackendConfig of(String name) {
        return new BackendConfig(name, 0, Map.of());
    }
}
