// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.vllm;

import static io.kvferry.backend.nccl.engines.P2pEngines.decoder;
import static io.kvferry.backend.nccl.engines.P2pEngines.freePorts;
import static io.kvferry.backend.nccl.engines.P2pEngines.options;
import static io.kvferry.backend.nccl.engines.P2pEngines.prefiller;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.memory.StagingPool;

import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

import java.io.IOException;
import java.util.List;
import java.util.Map;

/// Protocol 0 with the libraries that vLLM uses, pyzmq on libzmq and msgpack.
@Tag("interop")
class VllmPeerTest {
    /// The next line after it was told to go on.
    private static String next(PythonPeer peer) {
        peer.tell("");
        return peer.hear();
    }

    @Test
    @DisplayName("P4 rank 0 registers at a proxy of pyzmq, and says goodbye")
    void registersAtAProxyOfPyzmq() throws IOException {
        int pPort = freePorts(1);
        try (var proxy = new PythonPeer("peer.py", List.of("proxy"))) {
            var port = next(proxy);
            var options = options("PUT_ASYNC", pPort);
            options.put("proxy_ip", "127.0.0.1");
            options.put("proxy_port", port);
            options.put("http_port", 8000L);
            var form =
                    "{\"type\": \"%s\", \"http_address\": \"127.0.0.1:8000\","
                            + " \"zmq_address\": \"127.0.0.1:%d\"}";
            try (var p = prefiller(1, Map.of(), options)) {
                for (int i = 0; i < 2; i++) {
                    assertThat(next(proxy)).isEqualTo(form.formatted("P", pPort));
                }
                assertThat(p.stats().health()).isEmpty();
            }
            var last = next(proxy);
            for (int i = 0; i < 3 && last.contains("\"P\""); i++) {
                last = next(proxy);
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
                    var peer =
                            new PythonPeer(
                                    "peer.py",
                                    List.of("engine", "127.0.0.1:" + port, "127.0.0.1:14579"))) {
                for (int i = 0; i < 3; i++) {
                    assertThat(next(peer)).isEqualTo("[\"1\", {\"ret\": 1}]");
                }
                assertThat(engine.stats().health()).isEmpty();
            }
        }
    }
}
