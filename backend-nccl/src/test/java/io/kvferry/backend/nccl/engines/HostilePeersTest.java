// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.engines;

import static io.kvferry.backend.nccl.engines.P2pEngines.TOKENS;
import static io.kvferry.backend.nccl.engines.P2pEngines.alone;
import static io.kvferry.backend.nccl.engines.P2pEngines.assertNothingHeld;
import static io.kvferry.backend.nccl.engines.P2pEngines.assertNothingStaged;
import static io.kvferry.backend.nccl.engines.P2pEngines.decode;
import static io.kvferry.backend.nccl.engines.P2pEngines.decoder;
import static io.kvferry.backend.nccl.engines.P2pEngines.finished;
import static io.kvferry.backend.nccl.engines.P2pEngines.freePorts;
import static io.kvferry.backend.nccl.engines.P2pEngines.loaded;
import static io.kvferry.backend.nccl.engines.P2pEngines.options;
import static io.kvferry.backend.nccl.engines.P2pEngines.prefill;
import static io.kvferry.backend.nccl.engines.P2pEngines.prefiller;
import static io.kvferry.backend.nccl.engines.P2pEngines.prompt;
import static io.kvferry.backend.nccl.engines.P2pEngines.tokens;
import static io.kvferry.backend.nccl.engines.P2pEngines.tokensAlone;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.nccl.wire.CacheShape;
import io.kvferry.backend.nccl.wire.Grant;
import io.kvferry.backend.nccl.wire.PeerMessage;
import io.kvferry.backend.nccl.wire.PromptMark;
import io.kvferry.backend.nccl.wire.VllmMessage;
import io.kvferry.spi.ErrorCode;
import io.kvferry.toolkit.staging.BuddyStagingPool;

import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.zeromq.SocketType;
import org.zeromq.ZContext;
import org.zeromq.ZMQ;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Map;
import java.util.Random;

/// What others send to the control port, by a ZeroMQ library that nobody here wrote.
class HostilePeersTest {
    private static final CacheShape OTHER =
            new CacheShape("aa", "LBHNC/1", "float32", 0, 1, "2 layers bb");
    private static final PromptMark MARK = new PromptMark(33, 5);

    /// A DEALER as vLLM's: its identity is its address, its messages are single frames.
    private static ZMQ.Socket dealer(ZContext context, int port) {
        var socket = context.createSocket(SocketType.DEALER);
        socket.setIdentity("127.0.0.1:1".getBytes(StandardCharsets.UTF_8));
        socket.setReceiveTimeOut(20_000);
        socket.setLinger(0);
        socket.connect("tcp://127.0.0.1:" + port);
        return socket;
    }

    /// One that is connected. JeroMQ stalls in some greetings, with nothing sent and no error.
    private static ZMQ.Socket connected(ZContext context, int port) {
        for (int tries = 0; tries < 10; tries++) {
            var socket = dealer(context, port);
            socket.setReceiveTimeOut(3_000);
            socket.send(new VllmMessage.Get("r#l").encode());
            if (socket.recv() != null) {
                socket.setReceiveTimeOut(20_000);
                return socket;
            }
            socket.close();
        }
        throw new AssertionError("no connection to port " + port);
    }

    @Test
    @DisplayName("P5 the port outlives whatever it is sent, and answers both protocols")
    void thePortOutlivesWhateverItIsSentAndAnswersBothProtocols() throws IOException {
        int pPort = freePorts(1);
        int dPort = freePorts(1);
        long seed = System.nanoTime();
        var random = new Random(seed);
        try (var pool = new BuddyStagingPool(16 << 20);
                var alone = alone(Map.of());
                var p = prefiller(1, Map.of(), options("PUT_ASYNC", pPort));
                var d = decoder(1, Map.of(), options("PUT_ASYNC", dPort), pool);
                var context = new ZContext()) {
            for (int port : new int[] {pPort, dPort}) {
                var peer = connected(context, port);
                peer.send(new byte[] {(byte) 0xc0}); // nil
                peer.send("82a3636d64".getBytes(StandardCharsets.UTF_8)); // not msgpack of ours
                peer.send(new byte[0]);
                peer.sendMore("three");
                peer.sendMore("frames");
                peer.send("here");
                peer.send(new VllmMessage.New(new byte[128]).encode());
                for (int i = 0; i < 200; i++) {
                    var noise = new byte[random.nextInt(300)];
                    random.nextBytes(noise);
                    if (noise.length > 0 && noise[0] == (byte) PeerMessage.MARK) {
                        noise[0] = 0; // those are answered, see below
                    }
                    peer.send(noise);
                }
                peer.send(new VllmMessage.Put("r#l", new long[] {2, 4}, "float16").encode());
                assertThat(peer.recv()).as("seed %d", seed).isEqualTo(VllmMessage.PUT_NO_MEMORY);
                peer.send(new VllmMessage.Get("r#l").encode());
                assertThat(peer.recv()).isEqualTo(new VllmMessage.Missing().encode());
                peer.send(new byte[] {(byte) PeerMessage.MARK, 1, 99});
                assertThat(refusal(peer)).isEqualTo(ErrorCode.PROTOCOL);
                peer.send(new byte[] {(byte) PeerMessage.MARK, 2, 1});
                assertThat(refusal(peer)).isEqualTo(ErrorCode.INCOMPATIBLE);
                var transfer = new PeerMessage.Transfer("t", 1, 0, OTHER, MARK, new int[] {3});
                peer.send(new PeerMessage.Offer(transfer).encode());
                assertThat(refusal(peer)).isIn(ErrorCode.INCOMPATIBLE, ErrorCode.UNSUPPORTED);
                peer.send(new PeerMessage.Pull(transfer, Grant.draw(), "127.0.0.1:1").encode());
                assertThat(refusal(peer)).isIn(ErrorCode.INCOMPATIBLE, ErrorCode.UNSUPPORTED);
                for (var id : new String[] {"", "x".repeat(5000), "x".repeat(100_000)}) {
                    peer.send(new PeerMessage.Release(id, 1, 0).encode());
                    assertThat(refusal(peer))
                            .isIn(ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED);
                }
                var stale = new PeerMessage.Transfer("t", 1, 99, OTHER, MARK, new int[] {3});
                peer.send(
                        (port == pPort
                                        ? new PeerMessage.Pull(stale, Grant.draw(), "127.0.0.1:1")
                                        : new PeerMessage.Offer(stale))
                                .encode());
                assertThat(refusal(peer)).isEqualTo(ErrorCode.STALE_INCARNATION);
            }
            int[] prompt = prompt(1, TOKENS);
            finished(prefill(p, prompt, "x", dPort));
            var outcome = finished(decode(d, prompt, "x", pPort));
            assertThat(tokens(outcome)).isEqualTo(tokensAlone(alone, prompt));
            assertThat(loaded(outcome)).isGreaterThanOrEqualTo(TOKENS - 1);
            assertNothingHeld(p);
            assertNothingStaged(pool);
        }
    }

    @Test
    @DisplayName("P4 rank 0 registers at the proxy as vLLM does")
    void rankZeroRegistersAtTheProxyAsVllmDoes() throws IOException {
        int pPort = freePorts(1);
        try (var context = new ZContext()) {
            var proxy = context.createSocket(SocketType.ROUTER);
            proxy.setReceiveTimeOut(20_000);
            proxy.setLinger(0);
            int proxyPort = proxy.bindToRandomPort("tcp://127.0.0.1");
            var options = options("PUT_ASYNC", pPort);
            options.put("proxy_ip", "127.0.0.1");
            options.put("proxy_port", String.valueOf(proxyPort)); // a string, as in vLLM's recipes
            options.put("http_port", 8000L);
            options.put("nccl_num_channels", "16");
            var p = prefiller(1, Map.of(), options);
            try (p) {
                for (int i = 0; i < 2; i++) {
                    assertThat(proxy.recv()).as("identity").isNotNull();
                    assertThat(VllmMessage.decode(proxy.recv()))
                            .isEqualTo(
                                    new VllmMessage.Ping(
                                            "P", "127.0.0.1:8000", "127.0.0.1:" + pPort));
                    assertThat(proxy.hasReceiveMore()).isFalse();
                }
            }
        }
    }

    private static ErrorCode refusal(ZMQ.Socket peer) {
        var frame = peer.recv();
        assertThat(frame).as("an answer").isNotNull();
        var answer = PeerMessage.decode(frame);
        assertThat(answer).isInstanceOf(PeerMessage.Refused.class);
        return ((PeerMessage.Refused) answer).failure().code();
    }

    @Test
    void withASecretOnlyThoseWhoKnowItAreHeard(@TempDir Path folder) throws IOException {
        var secret = secret(folder.resolve("secret"), "a secret of the whole fleet");
        var wrong = secret(folder.resolve("wrong"), "another one of some other fleet");
        int pPort = freePorts(1);
        int dPort = freePorts(1);
        int oPort = freePorts(1);
        var pOptions = options("PUT_ASYNC", pPort);
        pOptions.put("secret_file", secret);
        var dOptions = options("PUT_ASYNC", dPort);
        dOptions.put("secret_file", secret);
        var outsider = options("PUT_ASYNC", oPort);
        outsider.put("secret_file", wrong);
        outsider.put("receive_timeout", "1s");
        outsider.put("transfer_timeout", "1s");
        try (var pool = new BuddyStagingPool(16 << 20);
                var alone = alone(Map.of());
                var p = prefiller(1, Map.of(), pOptions);
                var d = decoder(1, Map.of(), dOptions, pool);
                var o = decoder(1, Map.of(), outsider, pool);
                var context = new ZContext()) {
            int[] prompt = prompt(1, TOKENS);
            finished(prefill(p, prompt, "x", 0));
            var peer = dealer(context, pPort);
            peer.setReceiveTimeOut(300);
            peer.send(new VllmMessage.Get("r#l").encode());
            assertThat(peer.recv()).as("an answer in the clear").isNull();
            assertThat(loaded(finished(decode(o, prompt, "x", pPort)))).isZero();
            var outcome = finished(decode(d, prompt, "x", pPort));
            assertThat(tokens(outcome)).isEqualTo(tokensAlone(alone, prompt));
            assertThat(loaded(outcome)).isGreaterThanOrEqualTo(TOKENS - 1);
            assertNothingHeld(p);
            finished(prefill(p, prompt, "y", dPort));
            assertThat(p.stats().held()).as("pushed").isZero();
            assertThat(loaded(finished(decode(d, prompt, "y", pPort))))
                    .isGreaterThanOrEqualTo(TOKENS - 1);
            assertNothingStaged(pool);
        }
    }

    private static String secret(Path file, String text) throws IOException {
        Files.writeString(file, text);
        Files.setPosixFilePermissions(file, PosixFilePermissions.fromString("rw-------"));
        return file.toString();
    }
}
