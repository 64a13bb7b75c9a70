// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import static io.kvferry.backend.nccl.P2pEngines.decoder;
import static io.kvferry.backend.nccl.P2pEngines.freePorts;
import static io.kvferry.backend.nccl.P2pEngines.options;
import static io.kvferry.backend.nccl.P2pEngines.prefiller;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.memory.StagingPool;

import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

import java.io.BufferedReader;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;

/// Protocol 0 with the libraries that vLLM uses, pyzmq on libzmq and msgpack.
@Tag("interop")
class VllmPeerTest {
    private static final String PYTHON = "KVFERRY_MOONCAKE_PYTHON";
    private static final List<String> PLACES =
            List.of("../interop/.venv-mooncake/bin/python", "interop/.venv-mooncake/bin/python");

    /// A Python process that says a line at a time.
    private static final class Peer implements AutoCloseable {
        private final Process process;
        private final BufferedReader out;

        Peer(String... arguments) throws IOException {
            var command = new ArrayList<>(List.of(python(), "../interop/nccl/peer.py"));
            command.addAll(List.of(arguments));
            process =
                    new ProcessBuilder(command)
                            .redirectError(ProcessBuilder.Redirect.DISCARD)
                            .start();
            out = process.inputReader(StandardCharsets.UTF_8);
        }

        /// The first one that has what the tests need; skips the test when there is none.
        private static String python() throws IOException {
            var named = Optional.ofNullable(System.getenv(PYTHON)).filter(text -> !text.isBlank());
            var installed =
                    PLACES.stream().filter(place -> Files.isExecutable(Path.of(place))).findFirst();
            Assumptions.assumeTrue(
                    named.isPresent() || installed.isPresent(),
                    "no pyzmq: interop/install-peers gets it, or name a Python that has it in "
                            + PYTHON);
            var python = named.orElseGet(installed::orElseThrow);
            Assumptions.assumeTrue(
                    imports(python, "import zmq, msgpack"),
                    python + " has no pyzmq or no msgpack: install them there");
            return python;
        }

        private static boolean imports(String python, String statement) throws IOException {
            var process =
                    new ProcessBuilder(python, "-c", statement)
                            .redirectError(ProcessBuilder.Redirect.DISCARD)
                            .start();
            try {
                return process.waitFor(60, TimeUnit.SECONDS) && process.exitValue() == 0;
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                return false;
            } finally {
                process.destroyForcibly();
            }
        }

        String next() throws IOException {
            process.getOutputStream().write('\n');
            process.getOutputStream().flush();
            var line = out.readLine();
            assertThat(line).as("run interop/nccl/peer.py by hand to see why").startsWith("@ ");
            return line.substring(2);
        }

        @Override
        public void close() {
            process.destroyForcibly().onExit().join();
        }
    }

    @Test
    @DisplayName("P4 rank 0 registers at a proxy of pyzmq, and says goodbye")
    void registersAtAProxyOfPyzmq() throws IOException {
        int pPort = freePorts(1);
        try (var proxy = new Peer("proxy")) {
            var port = proxy.next();
            var options = options("PUT_ASYNC", pPort);
            options.put("proxy_ip", "127.0.0.1");
            options.put("proxy_port", port);
            options.put("http_port", 8000L);
            var form =
                    "{\"type\": \"%s\", \"http_address\": \"127.0.0.1:8000\","
                            + " \"zmq_address\": \"127.0.0.1:%d\"}";
            try (var p = prefiller(1, Map.of(), options)) {
                for (int i = 0; i < 2; i++) {
                    assertThat(proxy.next()).isEqualTo(form.formatted("P", pPort));
                }
                assertThat(p.stats().health()).isEmpty();
            }
            var last = proxy.next();
            for (int i = 0; i < 3 && last.contains("\"P\""); i++) {
                last = proxy.next();
            }
            assertThat(last).isEqualTo(form.formatted("BYE", pPort));
        }
    }

    @Test
    @DisplayName("P4 P5 an engine of pyzmq is answered, that there is no memory and no such tensor")
    void answersAnEngineOfPyzmq() throws IOException {
        for (boolean prefills : new boolean[] {true, false}) {
            int port = freePorts(1);
            var options = options("PUT_ASYNC", port);
            try (var engine =
                            prefills
                                    ? prefiller(1, Map.of(), options)
                                    : decoder(1, Map.of(), options, StagingPool.NONE);
                    var peer = new Peer("engine", "127.0.0.1:" + port, "127.0.0.1:14579")) {
                for (int i = 0; i < 3; i++) {
                    assertThat(peer.next()).isEqualTo("[\"1\", {\"ret\": 1}]");
                }
                assertThat(engine.stats().health()).isEmpty();
            }
        }
    }
}
