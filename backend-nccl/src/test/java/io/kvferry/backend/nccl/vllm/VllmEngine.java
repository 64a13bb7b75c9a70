// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.vllm;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.nccl.engines.P2pEngines;
import io.kvferry.backend.nccl.gpu.NcclDouble;
import io.kvferry.spi.Deadline;

import org.junit.jupiter.api.Assumptions;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.concurrent.locks.LockSupport;
import java.util.regex.Pattern;
import java.util.stream.LongStream;

/// vLLM's own P2pNcclEngine in a process of its own, see `interop/nccl/vllm_engine.py`; its NCCL is
/// the C double, across processes.
public final class VllmEngine implements AutoCloseable {
    private static final String FOLDER = "KVFERRY_VLLM_P2P";
    private static final Path INSTALLED = Path.of("../interop/.vllm-p2p");
    private static final Duration SOON = Duration.ofSeconds(100);
    private static final Pattern TENSOR =
            Pattern.compile("\\[\\[([0-9, ]*)], \"([a-z0-9]+)\", \"([^\"]*)\"]");

    private final PythonPeer peer;
    private final String address;

    /// @param shape as vLLM sees it
    /// @param dtype without `torch.`
    public record Tensor(List<Long> shape, String dtype, byte[] bytes) {
        @Override
        public boolean equals(Object other) {
            return other instanceof Tensor tensor
                    && tensor.shape.equals(shape)
                    && tensor.dtype.equals(dtype)
                    && Arrays.equals(tensor.bytes, bytes);
        }

        @Override
        public int hashCode() {
            return Arrays.hashCode(bytes);
        }
    }

    /// Where a thread of it can be stopped for ever.
    public enum Place {
        /// Right before ncclSend, when the peer was told of the tensor, or has asked for it.
        SEND,
        /// Before a PUT is answered, or right before ncclRecv for a GET.
        RECEIVE
    }

    /// Skips the test where vLLM's files, or a Python with pyzmq, are not there.
    ///
    /// @param sendType as vLLM's option
    public VllmEngine(NcclDouble nccl, int port, String sendType, boolean prefills)
            throws IOException {
        var folder =
                Optional.ofNullable(System.getenv(FOLDER))
                        .filter(text -> !text.isBlank())
                        .map(Path::of)
                        .orElse(INSTALLED);
        Assumptions.assumeTrue(
                Files.exists(folder.resolve("p2p_nccl_engine.py")),
                "no p2p_nccl_engine.py of vLLM's: interop/install-peers vllm-p2p gets it, or name"
                        + " its folder in "
                        + FOLDER);
        address = "127.0.0.1:" + port;
        peer =
                new PythonPeer(
                        "vllm_engine.py",
                        List.of(
                                folder.toString(),
                                nccl.file().toString(),
                                String.valueOf(port),
                                sendType,
                                prefills ? "prefill" : "decode"));
        try {
            assertThat(peer.hear()).isEqualTo("\"ready\"");
        } catch (RuntimeException | Error e) {
            peer.close();
            throw e;
        }
    }

    /// A port for one, which other tests do not take.
    public static int freePort() throws IOException {
        return P2pEngines.freePorts(1);
    }

    public String address() {
        return address;
    }

    /// Has it call `send_tensor`; [#sent] is to be asked then.
    public void send(String tensorId, Tensor tensor, String remote) {
        peer.tell(
                "[\"send\", \"%s\", %s, \"%s\", \"%s\", \"%s\"]"
                        .formatted(
                                tensorId,
                                tensor.shape,
                                tensor.dtype,
                                Base64.getEncoder().encodeToString(tensor.bytes),
                                remote));
    }

    /// Whether vLLM reports that it was sent: with PUT that it was, else that it will be.
    public boolean sent() {
        return Boolean.parseBoolean(peer.hear());
    }

    /// Has it call `recv_tensor`; [#received] is to be asked then.
    public void receive(String tensorId, String remote) {
        peer.tell("[\"receive\", \"%s\", \"%s\"]".formatted(tensorId, remote));
    }

    /// Empty where vLLM has None.
    public Optional<Tensor> received() {
        var said = peer.hear();
        if (said.equals("null")) {
            return Optional.empty();
        }
        var tensor = TENSOR.matcher(said);
        assertThat(tensor.matches()).as(said).isTrue();
        var shape =
                Arrays.stream(tensor.group(1).split(", "))
                        .mapToLong(Long::parseLong)
                        .boxed()
                        .toList();
        var bytes = Base64.getDecoder().decode(tensor.group(3));
        return Optional.of(new Tensor(shape, tensor.group(2), bytes));
    }

    /// Waits until it has been put that tensor.
    ///
    /// @return false when it has not come before the deadline
    public boolean awaitHeld(String tensorId, Deadline deadline) {
        while (!deadline.passed()) {
            peer.tell("[\"holds\", \"%s\"]".formatted(tensorId));
            if (Boolean.parseBoolean(peer.hear())) {
                return true;
            }
            LockSupport.parkNanos(1_000_000);
        }
        return false;
    }

    /// Stops it at the n-th tensor from now on that comes there.
    public void pause(Place place, int n) {
        peer.tell("[\"pause\", \"%s\", %d]".formatted(place.name().toLowerCase(Locale.ROOT), n));
        assertThat(peer.hear()).isEqualTo("true");
    }

    /// Waits until it has stopped.
    public void awaitPaused() {
        var limit = Deadline.in(SOON);
        for (var said = peer.hear(); !said.equals("\"paused\""); said = peer.hear()) {
            assertThat(limit.passed()).as("it says " + said).isFalse();
        }
    }

    /// What real NCCL would have answered with a hang or with wrong bytes.
    public String misuse() {
        peer.tell("[\"misuse\"]");
        return peer.hear();
    }

    /// kill -9
    public void kill() {
        peer.kill();
    }

    @Override
    public void close() {
        peer.close();
    }

    public static List<Long> shape(long... sizes) {
        return LongStream.of(sizes).boxed().toList();
    }
}
