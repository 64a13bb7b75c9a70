// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.config;

import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;

/// The settings every connector gets, KV or encoder cache: vLLM's `KVTransferConfig` and its `ec_`
/// twin, whose names differ only in the prefix. Which of the legacy fields a connector uses is its
/// own affair.
///
/// @param connector plugin name (`kv_connector`)
/// @param role `kv_role`
/// @param engineId identity of the engine towards peers (`engine_id`), unique per engine and start
/// @param bufferDevice `kv_buffer_device`: `cpu`, `cuda`
/// @param bufferSizeBytes `kv_buffer_size`
/// @param rank `kv_rank`, -1 when absent
/// @param parallelSize `kv_parallel_size`
/// @param ip `kv_ip`
/// @param port `kv_port`
/// @param failurePolicy `kv_load_failure_policy`; of a composite only the outermost counts
/// @param extra `kv_connector_extra_config` as parsed JSON, not yet validated; keys in file order
public record ConnectorConfig(
        String connector,
        KvRole role,
        String engineId,
        String bufferDevice,
        long bufferSizeBytes,
        int rank,
        int parallelSize,
        String ip,
        int port,
        LoadFailurePolicy failurePolicy,
        Map<String, Object> extra) {
    /// vLLM's `kv_port` and `ec_port` default.
    public static final int DEFAULT_PORT = 14_579;

    public ConnectorConfig {
        Objects.requireNonNull(connector, "connector");
        Objects.requireNonNull(role, "role");
        Objects.requireNonNull(engineId, "engineId");
        extra = Collections.unmodifiableMap(new LinkedHashMap<>(extra));
    }

    /// A configuration with vLLM's defaults for everything not named.
    public static ConnectorConfig of(
            String connector, KvRole role, String engineId, Map<String, Object> extra) {
        return new ConnectorConfig(
                connector,
                role,
                engineId,
                "cpu",
                1_000_000_000L,
                -1,
                1,
                "127.0.0.1",
                DEFAULT_PORT,
                LoadFailurePolicy.FAIL,
                extra);
    }
}
