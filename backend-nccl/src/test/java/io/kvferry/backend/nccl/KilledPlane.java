// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import io.kvferry.backend.nccl.gpu.NcclDouble;
import io.kvferry.backend.nccl.gpu.NcclDouble.Knob;
import io.kvferry.backend.nccl.gpu.NcclPlane;
import io.kvferry.backend.nccl.plane.JoinedPlane;
import io.kvferry.engine.Engine;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;

import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/// What moves the blocks between two engines of which one is killed: a value of `data_plane`, or
/// `double:FILE`, NCCL's plane alone over the C double, between processes.
final class KilledPlane extends AlteredP2p {
    private static final String DOUBLE = "double:";

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

    Engine open(KvRole role, Map<String, Object> options, HostServices host) {
        var all = new HashMap<>(options);
        if (!name.startsWith(DOUBLE)) {
            all.put("data_plane", name);
        }
        return P2pEngines.open(role, 1, all, host, this);
    }

    @Override
    public WorkerConnector openWorker(WorkerContext context) {
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
                        "127.0.0.1",
                        "127.0.0.1",
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
