// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.handoff;

import io.kvferry.benchmarks.handoff.EngineProcess.Report;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Path;
import java.util.List;

/// How a router leads one prompt through a prefill and a decode engine with a given connector.
///
/// Threading: one thread.
sealed interface Route {
    String connector();

    /// The connector's JSON for both engines.
    String prefillConfig();

    String decodeConfig();

    Pair send(EngineProcess prefill, EngineProcess decode, String id, int tokens);

    /// What both engines said.
    record Pair(Report prefill, Report decode) {
        /// From the end of the prefill to the first token of the decoder, which needs the whole
        /// cache.
        long handOffNanos() {
            return decode.token() - prefill.token();
        }

        long ttftNanos() {
            return decode.token() - Math.min(prefill.begun(), decode.begun());
        }
    }

    /// Both engines get the request at once and meet on its transfer id.
    ///
    /// @param sameHost whether bytes may go from process to process, as engines of one host do
    ///   where the kernel lets them; else they go over TCP as between two hosts
    record Mooncake(int port, boolean sameHost) implements Route {
        static Mooncake onFreePort(boolean sameHost) throws IOException {
            try (var socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
                return new Mooncake(socket.getLocalPort(), sameHost);
            }
        }

        @Override
        public String connector() {
            return "MooncakeConnector, " + (sameHost ? "same host" : "TCP");
        }

        @Override
        public String prefillConfig() {
            return """
            {"kv_connector": "MooncakeConnector", "kv_role": "kv_producer", "engine_id": "p",
             "kv_connector_extra_config": {"bootstrap_port": %d, "cross_memory": %b}}\
            """
                    .formatted(port, sameHost);
        }

        @Override
        public String decodeConfig() {
            return """
            {"kv_connector": "MooncakeConnector", "kv_role": "kv_consumer", "engine_id": "d",
             "kv_connector_extra_config": {"cross_memory": %b}}\
            """
                    .formatted(sameHost);
        }

        @Override
        public Pair send(EngineProcess prefill, EngineProcess decode, String id, int tokens) {
            var d =
                    decode.start(
                            id,
                            tokens,
                            List.of(
                                    "do_remote_prefill=true",
                                    "do_remote_decode=false",
                                    "remote_bootstrap_addr=http://127.0.0.1:" + port,
                                    "remote_engine_id=p",
                                    "transfer_id=" + id));
            var p =
                    prefill.start(
                            id,
                            tokens,
                            List.of(
                                    "do_remote_prefill=false",
                                    "do_remote_decode=true",
                                    "transfer_id=" + id));
            return new Pair(prefill.report(p), decode.report(d));
        }
    }

    /// The decoder gets the request when the prefiller's blocks are in the folder.
    record Disk(Path folder) implements Route {
        @Override
        public String connector() {
            return "DiskConnector";
        }

        @Override
        public String prefillConfig() {
            return """
            {"kv_connector": "DiskConnector", "kv_role": "kv_both", "engine_id": "p",
             "kv_connector_extra_config": {"path": "%s", "capacity": "40GiB"}}\
            """
                    .formatted(folder);
        }

        @Override
        public String decodeConfig() {
            return """
            {"kv_connector": "DiskConnector", "kv_role": "kv_both", "engine_id": "d",
             "kv_connector_extra_config": {"path": "%s", "capacity": "40GiB", "save": "none"}}\
            """
                    .formatted(folder);
        }

        @Override
        public Pair send(EngineProcess prefill, EngineProcess decode, String id, int tokens) {
            var p = prefill.report(prefill.start(id, tokens, List.of()));
            return new Pair(p, decode.report(decode.start(id, tokens, List.of())));
        }
    }
}
