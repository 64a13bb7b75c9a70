// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.master;

import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.backend.mooncake.store.master.OwnerTable.Snapshot;
import io.kvferry.backend.mooncake.store.remote.StoreProtocol;
import io.kvferry.backend.mooncake.store.remote.StoreProtocol.Operation;
import io.kvferry.backend.mooncake.store.remote.StoreRequests;
import io.kvferry.backend.mooncake.store.remote.StoreSecret;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;
import io.kvferry.toolkit.secret.FleetSecret;
import io.kvferry.toolkit.zmtp.SideChannel;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.function.LongSupplier;

/// The directory of the owners of a store. It speaks as an owner does (`StoreProtocol`): the same
/// frames, secret and limits.
///
/// Threading: any thread.
public final class StoreMaster implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(StoreMaster.class);
    private static final int THREADS = 4;

    private static final int SWEEPS = 4;

    private final OwnerTable table;
    private final Duration ownerTtl;
    private final StoreRequests requests =
            new StoreRequests("kvferry-master", THREADS, 1, this::answer);
    private final SideChannel channel;
    private final String address;

    /// Settings of a master.
    ///
    /// @param host address that it listens on
    /// @param port of its requests; 0 for any
    /// @param ownerTtl how long an owner stays listed without a report
    /// @param secretFile file with the fleet's secret; empty for the one of the environment, if any
    /// @param insecure whether other hosts may use it without a secret
    /// @param forgottenFile where forgotten owners are persisted; without it a restarted master
    ///   lists them again
    public record Settings(
            String host,
            int port,
            Duration ownerTtl,
            Optional<Path> secretFile,
            boolean insecure,
            Optional<Path> forgottenFile) {
        /// Without a file of forgotten owners.
        public Settings(
                String host,
                int port,
                Duration ownerTtl,
                Optional<Path> secretFile,
                boolean insecure) {
            this(host, port, ownerTtl, secretFile, insecure, Optional.empty());
        }

        /// On loopback, with the defaults.
        public static Settings local(int port) {
            return new Settings("127.0.0.1", port, Duration.ofSeconds(10), Optional.empty(), false);
        }

        /// What the file or the environment says.
        public Optional<FleetSecret> secret() {
            return StoreSecret.of(secretFile);
        }
    }

    private StoreMaster(Settings settings, LongSupplier nanos) {
        this.ownerTtl = settings.ownerTtl();
        this.table = new OwnerTable(ownerTtl, nanos, new ForgottenOwners(settings.forgottenFile()));
        this.channel = new SideChannel("kvferry-master", StoreSecret.keys(settings.secret()));
        boolean done = false;
        try {
            int port = settings.port();
            String bound = channel.listen(settings.host(), settings.host(), port, port, requests);
            this.address = bound.substring("tcp://".length());
            channel.every(ownerTtl.dividedBy(SWEEPS), table::expire);
            done = true;
        } finally {
            if (!done) {
                close();
            }
        }
    }

    /// Starts a master; on return it can be used.
    ///
    /// @throws KvFerryException [io.kvferry.spi.ErrorCode#BAD_CONFIG] when other hosts could use it
    ///   without a secret, [io.kvferry.spi.ErrorCode#UNAVAILABLE] when the port cannot be bound, or
    ///   [io.kvferry.spi.ErrorCode#IO] when the file of forgotten owners cannot be read
    public static StoreMaster start(Settings settings) {
        return start(settings, System::nanoTime);
    }

    /// @param nanos a clock that only goes forward
    static StoreMaster start(Settings settings, LongSupplier nanos) {
        StoreSecret.requireToListen(settings.host(), settings.secret(), settings.insecure());
        return new StoreMaster(settings, nanos);
    }

    private StoreCode answer(
            Operation operation, long session, WireReader in, WireWriter out, Deadline deadline) {
        switch (operation) {
            case REGISTER -> {
                out.i64(ownerTtl.toNanos());
                return table.register(ListedOwner.read(in));
            }
            case FORGET -> {
                return forget(in.string(), in.bool());
            }
            case LEAVE -> table.leave(ListedOwner.read(in));
            case OWNERS -> owners(in, out);
            default -> {
                return StoreCode.NOT_SUPPORTED; // that is for an owner
            }
        }
        return StoreCode.OK;
    }

    private StoreCode forget(String segment, boolean forgotten) {
        if (!ListedOwner.isName(segment)) {
            return StoreCode.INVALID_PARAMS;
        }
        try {
            return forgotten ? table.forget(segment) : table.recall(segment);
        } catch (KvFerryException e) {
            LOG.warn("{}", e.getMessage());
            return StoreCode.WRITE_FAIL;
        }
    }

    private void owners(WireReader in, WireWriter out) {
        long life = in.i64();
        long version = in.i64();
        Snapshot now = table.snapshot();
        boolean changed = now.life() != life || now.version() != version;
        out.i64(now.life()).i64(now.version()).bool(now.whole()).bool(changed);
        if (changed) {
            out.i32(now.owners().size());
            now.owners().forEach(owner -> owner.write(out));
            StoreProtocol.writeKeys(out, now.forgotten());
        }
    }

    /// `host:port`, by which owners and users reach it.
    public String address() {
        return address;
    }

    Snapshot owners() {
        return table.snapshot();
    }

    /// Why it cannot be reached; empty if it can.
    public Optional<String> trouble() {
        return channel.trouble();
    }

    Map<String, Long> gauges() {
        Snapshot now = table.snapshot();
        var gauges = new TreeMap<String, Long>();
        gauges.put("master_active_clients", (long) now.owners().size());
        gauges.put(
                "master_total_capacity_bytes",
                now.owners().stream().mapToLong(ListedOwner::capacity).sum());
        gauges.put("kvferry_master_list_version", now.version());
        gauges.put("kvferry_master_owners_forgotten", (long) now.forgotten().size());
        return gauges;
    }

    Map<String, Long> counters() {
        return new TreeMap<>(
                Map.of(
                        "kvferry_master_owners_expired_total",
                        table.expired(),
                        "kvferry_master_owners_refused_total",
                        table.refused()));
    }

    @Override
    public void close() {
        channel.close();
        requests.close();
    }
}
