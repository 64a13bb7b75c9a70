// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.handoff;

import io.kvferry.benchmarks.Tool;
import io.kvferry.benchmarks.handoff.EngineProcess.Report;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
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
            return decode.token().nanos() - prefill.token().nanos();
        }

        long ttftNanos() {
            return decode.token().nanos()
                    - Math.min(prefill.begun().nanos(), decode.begun().nanos());
        }

        /// Processor time of both engines during the hand-off.
        long cpuNanos() {
            return prefill.idle().cpuNanos()
                    - prefill.token().cpuNanos()
                    + decode.token().cpuNanos()
                    - decode.begun().cpuNanos();
        }

        /// For which the compilers of both engines have compiled so far.
        long compileMillis() {
            return prefill.idle().cost().compileMillis() + decode.idle().cost().compileMillis();
        }

        /// The parts of a hand-off through a store: until P has saved all, until D hears of the
        /// request, until D's token.
        long[] partsNanos() {
            return new long[] {
                prefill.idle().nanos() - prefill.token().nanos(),
                decode.begun().nanos() - prefill.idle().nanos(),
                decode.token().nanos() - decode.begun().nanos()
            };
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

    /// Both engines get the request at once; the decoder asks the prefiller before the prompt is
    /// computed.
    record P2p(int port, String sendType) implements Route {
        static P2p onFreePort(String sendType) throws IOException {
            try (var socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
                return new P2p(socket.getLocalPort(), sendType);
            }
        }

        @Override
        public String connector() {
            return "P2pNcclConnector, " + sendType;
        }

        @Override
        public String prefillConfig() {
            return config("kv_producer", "p", port);
        }

        @Override
        public String decodeConfig() {
            return config("kv_consumer", "d", 0);
        }

        private String config(String role, String id, int listenPort) {
            return """
            {"kv_connector": "P2pNcclConnector", "kv_role": "%s", "engine_id": "%s",
             "kv_connector_extra_config": {"send_type": "%s", "listen_port": %d}}\
            """
                    .formatted(role, id, sendType, listenPort);
        }

        @Override
        public Pair send(EngineProcess prefill, EngineProcess decode, String id, int tokens) {
            var d =
                    decode.start(
                            id,
                            tokens,
                            List.of(
                                    "do_remote_prefill=true",
                                    "prefill_addr=127.0.0.1:" + port,
                                    "transfer_id=" + id));
            var p =
                    prefill.start(
                            id, tokens, List.of("do_remote_decode=true", "transfer_id=" + id));
            return new Pair(prefill.report(p), decode.report(d));
        }
    }

    /// Makes the next hand-off independent of those before it; not measured.
    default void reset() throws IOException, InterruptedException {}

    /// Whether the decoder begins only when the prefiller has let go of the blocks.
    default boolean inTurns() {
        return false;
    }

    /// The decoder gets the request when the prefiller's blocks are in the folder.
    ///
    /// @param options more options of both engines, as JSON behind a comma
    record Disk(Path folder, String connector, String options) implements Route {
        /// As who sets nothing but the folder has it.
        static Disk withDefaults(Path folder) {
            return new Disk(folder, "DiskConnector, defaults", "");
        }

        /// Buffered, with as many threads as the limit has: they write in one process and read in
        /// the other.
        static Disk withThreads(Path folder, int threads) {
            return new Disk(
                    folder,
                    "DiskConnector",
                    """
                    , "capacity": "40GiB", "direct": "off", "read_threads": 1, "write_threads": %d\
                    """
                            .formatted(threads));
        }

        /// Deletes the files of the hand-offs before, so that all that is measured stays in the
        /// page cache.
        @Override
        public void reset() throws IOException, InterruptedException {
            if (Files.exists(folder)) {
                try (var all = Files.walk(folder)) {
                    for (var file : all.filter(each -> each.toString().endsWith(".kvb")).toList()) {
                        Files.deleteIfExists(file);
                    }
                }
            }
            Tool.sync();
        }

        @Override
        public boolean inTurns() {
            return true;
        }

        @Override
        public String prefillConfig() {
            return config("p", options);
        }

        @Override
        public String decodeConfig() {
            return config("d", options.isEmpty() ? "" : ", \"save\": \"none\"" + options);
        }

        private String config(String id, String more) {
            return """
            {"kv_connector": "DiskConnector", "kv_role": "kv_both", "engine_id": "%s",
             "kv_connector_extra_config": {"path": "%s"%s}}\
            """
                    .formatted(id, folder, more);
        }

        @Override
        public Pair send(EngineProcess prefill, EngineProcess decode, String id, int tokens) {
            var p = prefill.report(prefill.start(id, tokens, List.of()));
            return new Pair(p, decode.report(decode.start(id, tokens, List.of())));
        }
    }
}
