// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import io.kvferry.backend.nccl.engines.P2pEngines;
import io.kvferry.backend.nccl.gpu.NcclDouble;
import io.kvferry.backend.nccl.gpu.NcclDouble.Knob;
import io.kvferry.backend.nccl.gpu.NcclPlane;
import io.kvferry.backend.nccl.plane.JoinedPlane;
import io.kvferry.backend.nccl.wire.PeerAddress;
import io.kvferry.backend.nccl.wire.RequestAddresses;
import io.kvferry.engine.Engine;
import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.RequestHandle;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.config.LoadFailurePolicy;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;

import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/// What moves the blocks between two engines of which one is killed: a value of `data_plane`, or
/// `double:FILE`, NCCL's plane alone over the C double, between processes, or `vllm:FILE`, protocol
/// 0 over that double.
final class KilledPlane extends AlteredP2p {
    private static final String DOUBLE = "double:";
    private static final String VLLM = "vllm:";
    private static final String LOCAL = "127.0.0.1";

    private final String name;

    private KilledPlane(String name) {
        this.name = name;
    }

    static KilledPlane parse(String name) {
        return new KilledPlane(name);
    }

    /// Over the double, which is compiled here; skips the test where there is no gcc.
    static KilledPlane nccl() {
        return new KilledPlane(DOUBLE + NcclDouble.load().file());
    }

    /// Protocol 0 over the double; skips the test where there is no gcc.
    static KilledPlane vllm() {
        return new KilledPlane(VLLM + NcclDouble.load().file());
    }

    private boolean isVllm() {
        return name.startsWith(VLLM);
    }

    Engine open(KvRole role, Map<String, Object> options, HostServices host) {
        var all = new HashMap<>(options);
        if (isVllm()) {
            all.put("protocol", 0L);
            all.put("receive_timeout", "5s"); // no message says that nothing will be put
        } else if (!name.startsWith(DOUBLE)) {
            all.put("data_plane", name);
        }
        return P2pEngines.open(role, 1, all, host, this);
    }

    /// @param transfer names it, among all of a test
    RequestHandle prefill(Engine p, int[] prompt, String transfer, int pPort, int dPort) {
        return isVllm()
                ? byId(p, prompt, id(transfer, pPort, dPort), 1)
                : P2pEngines.prefill(p, prompt, transfer, dPort);
    }

    RequestHandle decode(Engine d, int[] prompt, String transfer, int pPort, int dPort) {
        return isVllm()
                ? byId(d, prompt, id(transfer, pPort, dPort), P2pEngines.GENERATED)
                : P2pEngines.decode(d, prompt, transfer, pPort);
    }

    /// As vLLM's proxy makes them, with another unique part for each transfer.
    private static String id(String transfer, int pPort, int dPort) {
        var unique = new BigInteger(1, transfer.getBytes(StandardCharsets.UTF_8));
        return new RequestAddresses(
                        new PeerAddress(LOCAL, pPort),
                        new PeerAddress(LOCAL, dPort),
                        "%032x".formatted(unique))
                .transferId();
    }

    private static RequestHandle byId(Engine engine, int[] prompt, String id, int tokens) {
        return engine.submit(
                GenerationRequest.of(prompt, SamplingParams.greedy(tokens))
                        .withFailurePolicy(LoadFailurePolicy.RECOMPUTE)
                        .withExternalId(id));
    }

    @Override
    public WorkerConnector openWorker(WorkerContext context) {
        if (isVllm()) {
            var nccl = NcclDouble.load(Path.of(name.substring(VLLM.length())));
            nccl.set(Knob.ACROSS, 1);
            return new VllmP2p(nccl).openWorker(context);
        }
        if (!name.startsWith(DOUBLE)) {
            return real.openWorker(context);
        }
        var nccl = NcclDouble.load(Path.of(name.substring(DOUBLE.length())));
        nccl.set(Knob.ACROSS, 1);
        var limit =
                Duration.ofSeconds(10); // a peer that dies is heard of before, by its connection
        var plane =
                NcclPlane.open(
                        "killed",
                        LOCAL,
                        LOCAL,
                        nccl.library(),
                        nccl.driver(),
                        new NcclPlane.Limits(64 << 10, limit, limit, Duration.ofSeconds(1), 0));
        return new P2pWorker(context, new JoinedPlane(List.of(plane)));
    }

    @Override
    public String toString() {
        return name;
    }
}
