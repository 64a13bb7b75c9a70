// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.rdma;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Finding;
import io.kvferry.spi.KvFerryException;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.function.Supplier;

/// The variables by which Mooncake's libraries choose RDMA devices.
public final class RdmaEnvironment {
    static final String GID_INDEX = "MC_GID_INDEX";
    static final String DEVICE = "MOONCAKE_DEVICE";
    static final String OWNER_DEVICE = "MC_OWNER_DEVICE";
    private static final String PROTOCOL = "MOONCAKE_PROTOCOL";
    private static final String AFFINITY = "MC_ENABLE_DEST_DEVICE_AFFINITY";
    private static final Set<String> PROTOCOLS = Set.of("rdma", "efa");

    private RdmaEnvironment() {}

    /// What a command needs beside its environment, as `run_vllm_with_mooncake_owner.sh` sets it;
    /// nothing where `MOONCAKE_PROTOCOL` is not `rdma` or `efa`.
    ///
    /// @throws KvFerryException [ErrorCode#BAD_CONFIG] when no device suits, or one that is named
    ///   does not
    public static Map<String, String> forThisMachine(Map<String, String> environment) {
        if (!isWanted(environment)) {
            return Map.of();
        }
        var host = RdmaHost.ofThisMachine();
        return of(environment, host, () -> Gpus.ofThisMachine(host));
    }

    private static boolean isWanted(Map<String, String> environment) {
        return PROTOCOLS.contains(value(environment, PROTOCOL).toLowerCase(Locale.ROOT));
    }

    private static String value(Map<String, String> environment, String name) {
        return environment.getOrDefault(name, "").strip();
    }

    static Map<String, String> of(
            Map<String, String> environment, RdmaHost host, Supplier<List<RnicPlan.Gpu>> gpus) {
        if (!isWanted(environment)) {
            return Map.of();
        }
        var more = new LinkedHashMap<String, String>();
        if (value(environment, AFFINITY).isEmpty()) {
            more.put(AFFINITY, "1");
        }
        int index = gidIndex(environment, host);
        more.put(GID_INDEX, Integer.toString(index));
        String named = value(environment, DEVICE);
        if (named.isEmpty()) {
            named = devices(host, gpus.get(), index);
            more.put(DEVICE, named);
        }
        host.check(named, index);
        String owner = value(environment, OWNER_DEVICE);
        if (!owner.isEmpty()) {
            host.check(owner, index);
        }
        return more;
    }

    private static int gidIndex(Map<String, String> environment, RdmaHost host) {
        String text = value(environment, GID_INDEX);
        if (text.isEmpty()) {
            return host.gidIndex()
                    .orElseThrow(() ->
                            bad(
                                    "no active port of an RDMA device has a GID; devices: "
                                            + host.names()
                                            + ". Set MOONCAKE_PROTOCOL=tcp, or "
                                            + GID_INDEX));
        }
        try {
            int index = Integer.parseInt(text);
            if (index >= 0) {
                return index;
            }
        } catch (NumberFormatException _) {
            // as a negative one
        }
        throw bad(GID_INDEX + " is " + text + ", not an index");
    }

    /// One device per GPU; all that are active where there is no GPU.
    private static String devices(RdmaHost host, List<RnicPlan.Gpu> gpus, int index) {
        if (gpus.isEmpty()) {
            String all = host.activeDevices(index);
            if (all.isEmpty()) {
                throw bad("no RDMA device is active for the GID index " + index);
            }
            return all;
        }
        var plan = RnicPlan.of(gpus, host.devices());
        if (!plan.clear()) {
            throw bad(
                    "not clear which RDMA device belongs to which GPU ("
                            + plan.lines()
                            + "); see kvferry rdma-config, and set "
                            + DEVICE);
        }
        return plan.list();
    }

    /// What `kvferry doctor` says of the devices.
    public static Finding diagnose() {
        return diagnose(RdmaHost.ofThisMachine());
    }

    static Finding diagnose(RdmaHost host) {
        String what = "RDMA devices";
        var index = host.gidIndex();
        if (index.isEmpty()) {
            return Finding.optional(
                    what,
                    host.isEmpty() ? "none" : host.names() + ", none with an active port and a GID",
                    "protocol rdma of a Mooncake cluster or of Mooncake's engine; tcp works without");
        }
        return Finding.ok(
                what, host.activeDevices(index.getAsInt()) + ", GID index " + index.getAsInt());
    }

    private static KvFerryException bad(String text) {
        return new KvFerryException(ErrorCode.BAD_CONFIG, text);
    }
}
