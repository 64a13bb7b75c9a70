// SPDX-License-Identifier: Apache-2.0
package io.kvferry.demo;

import io.kvferry.serving.http.Json;
import io.kvferry.serving.route.HandOff;

import tools.jackson.databind.node.ObjectNode;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Optional;

/// Layout of a cluster of child processes.
///
/// @param runner name of the model runner
/// @param model its folder
/// @param first a connector to stand before DiskConnector in the MultiConnector
/// @param mooncake folder of Mooncake's programs, where the store is a Mooncake cluster; empty for
///   an owner of our own
/// @param master whether the store is several owners that a master lists
/// @param pluginFolder where plugins are searched beside the class path
/// @param decoders number of decode instances
/// @param disk folder of the DiskConnector, shared by all
/// @param logs where the children write their logs
/// @param blocks KV blocks of each instance
record ClusterPlan(
        String runner,
        Path model,
        Optional<String> first,
        Optional<Path> mooncake,
        boolean master,
        Optional<Path> pluginFolder,
        int decoders,
        Path disk,
        Path logs,
        int blocks) {
    private static final String MOONCAKE = "MooncakeConnector";
    private static final String P2P = "P2pNcclConnector";
    private static final String STORE = "MooncakeStoreConnector";

    /// The hand-off that the first connector works with.
    HandOff handOff() {
        return first.map(name ->
                        switch (name) {
                            case MOONCAKE -> HandOff.MOONCAKE;
                            case P2P -> HandOff.P2P;
                            case STORE -> HandOff.CONTENT;
                            default -> HandOff.PARAMS;
                        })
                .orElse(HandOff.CONTENT);
    }

    /// Whether the engines share a store in a process of its own, which outlives them.
    boolean hasOwner() {
        return first.filter(STORE::equals).isPresent();
    }

    /// Of the process that lists the owners.
    List<String> masterArguments() {
        return withPlugins(List.of("master", "--port", "0", "--http-port", "0"));
    }

    /// Of an owner that reports to a master.
    List<String> ownerArguments(String masterAddress) {
        var arguments = new ArrayList<>(ownerArguments());
        arguments.addAll(List.of("--master", masterAddress));
        return arguments;
    }

    private List<String> withPlugins(List<String> command) {
        var arguments = new ArrayList<>(command);
        pluginFolder.ifPresent(
                folder -> arguments.addAll(List.of("--plugin-folder", folder.toString())));
        return arguments;
    }

    /// Of the process with the store.
    List<String> ownerArguments() {
        return withPlugins(
                List.of(
                        "owner",
                        "--port",
                        "0",
                        "--http-port",
                        "0",
                        "--global-segment-size",
                        "256MiB"));
    }

    /// `--kv-transfer-config` of one instance: MultiConnector over the first connector, if any, and
    /// DiskConnector.
    ///
    /// @param kvPort of MooncakeConnector's bootstrap server or P2pNcclConnector's control port,
    ///   where this is the prefill instance
    /// @param store where the store is, if the engines share one; it is the only cache then
    String connectorConfig(boolean prefill, int kvPort, String store) {
        var role =
                handOff() == HandOff.CONTENT ? "kv_both" : prefill ? "kv_producer" : "kv_consumer";
        var config =
                Json.object()
                        .put("kv_connector", "MultiConnector")
                        .put("kv_role", "kv_both")
                        .put("kv_load_failure_policy", "recompute");
        var children = config.putObject("kv_connector_extra_config").putArray("connectors");
        first.ifPresent(connector -> {
            var child =
                    child(
                            connector,
                            connector.toLowerCase(Locale.ROOT).replace("connector", ""),
                            role);
            if (connector.equals(MOONCAKE) && prefill) {
                child.putObject("kv_connector_extra_config").put("bootstrap_port", kvPort);
            }
            if (connector.equals(P2P)) { // its default is one port for all
                child.putObject("kv_connector_extra_config")
                        .put("listen_port", prefill ? kvPort : 0);
            }
            if (hasOwner()) {
                child.putObject("kv_connector_extra_config").put("store", store);
            }
            children.add(child);
        });
        if (hasOwner()) {
            return Json.text(config);
        }
        var diskChild = child("DiskConnector", "disk", "kv_both");
        diskChild.putObject("kv_connector_extra_config").put("path", disk.toString());
        children.add(diskChild);
        return Json.text(config);
    }

    private static ObjectNode child(String connector, String name, String role) {
        return Json.object().put("kv_connector", connector).put("name", name).put("kv_role", role);
    }

    List<String> serveArguments(boolean prefill, int kvPort, String store) {
        var arguments =
                new ArrayList<>(
                        List.of(
                                "serve",
                                "--runner",
                                runner,
                                "--model",
                                model.toString(),
                                "--port",
                                "0",
                                "--stop-grace",
                                "2",
                                "--blocks",
                                Integer.toString(blocks),
                                "--kv-transfer-config",
                                connectorConfig(prefill, kvPort, store)));
        pluginFolder.ifPresent(
                folder -> arguments.addAll(List.of("--plugin-folder", folder.toString())));
        return arguments;
    }

    /// A port that is free now, for what must be known before it listens.
    static int freePort() throws IOException {
        try (var socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            return socket.getLocalPort();
        }
    }
}
