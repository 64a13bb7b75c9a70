// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.remote;

import io.kvferry.backend.mooncake.store.embedded.EmbeddedStore;
import io.kvferry.backend.mooncake.store.embedded.objects.StoreConfig;
import io.kvferry.backend.mooncake.store.memory.SegmentMemory;
import io.kvferry.backend.mooncake.store.tier.DiskTier;
import io.kvferry.backend.mooncake.store.tier.TierConfig;
import io.kvferry.backend.mooncake.te.Access;
import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.backend.mooncake.te.JavaTransferEngine;
import io.kvferry.backend.mooncake.te.RegisteredMemory;
import io.kvferry.backend.mooncake.te.TransferEngine;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.disk.FileCalls;
import io.kvferry.toolkit.secret.FleetSecret;
import io.kvferry.toolkit.zmtp.SideChannel;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.lang.foreign.Arena;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;

/// A store in this process, keys and memory, for users in other processes.
///
/// The request port is opened last, after the memory has been allocated, so that a client which
/// waits for the port waits for the store. Port 0 lets the system choose: it is then opened first,
/// since the segment is named after it, and users are told to retry until the memory is ready.
///
/// Threading: any thread.
public final class StoreOwner implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(StoreOwner.class);
    private static final Duration SWEEP = Duration.ofSeconds(1);

    private final Settings settings;
    private final EmbeddedStore store;
    private final TransferEngine engine;
    private final SideChannel channel;
    private final StoreServer server;
    private final String address;

    /// Settings of an owner.
    ///
    /// @param host address announced to users, on which it also listens
    /// @param port of its requests; 0 for any
    /// @param bytes memory of the store
    /// @param store leases, eviction, checksums
    /// @param sessionLimit after which a user that sends nothing is forgotten
    /// @param secretFile file with the fleet's secret; empty for the one of the environment, if any
    /// @param insecure whether other hosts may use it without a secret
    /// @param disk tier below the memory; empty for none
    public record Settings(
            String host,
            int port,
            long bytes,
            StoreConfig store,
            Duration sessionLimit,
            Optional<Path> secretFile,
            boolean insecure,
            Optional<TierConfig> disk) {
        /// Without a disk tier.
        public Settings(
                String host,
                int port,
                long bytes,
                StoreConfig store,
                Duration sessionLimit,
                Optional<Path> secretFile,
                boolean insecure) {
            this(host, port, bytes, store, sessionLimit, secretFile, insecure, Optional.empty());
        }

        /// On loopback, with the defaults.
        public static Settings local(int port, long bytes) {
            return new Settings(
                    "127.0.0.1",
                    port,
                    bytes,
                    StoreConfig.DEFAULT.withChecksums(true),
                    Duration.ofSeconds(10),
                    Optional.empty(),
                    false);
        }

        /// The same over a disk tier.
        public Settings withDisk(TierConfig tier) {
            return new Settings(
                    host,
                    port,
                    bytes,
                    store,
                    sessionLimit,
                    secretFile,
                    insecure,
                    Optional.of(tier));
        }

        /// What the file or the environment says.
        public Optional<FleetSecret> secret() {
            return StoreSecret.of(secretFile);
        }
    }

    private StoreOwner(Settings settings, EmbeddedStore store, TransferEngine engine) {
        this.settings = settings;
        this.store = store;
        this.engine = engine;
        this.channel = new SideChannel("kvferry-owner", StoreSecret.keys(settings.secret()));
        this.server =
                new StoreServer(
                        store, engine, settings.sessionLimit(), settings.store().putDiscard());
        boolean done = false;
        try {
            this.address = open();
            channel.every(SWEEP, server::sweep);
            done = true;
        } finally {
            if (!done) {
                channel.close();
                server.close();
            }
        }
    }

    /// Starts an owner; on return it can be used.
    ///
    /// @throws KvFerryException [io.kvferry.spi.ErrorCode#BAD_CONFIG] when other hosts could use it
    ///   without a secret, [io.kvferry.spi.ErrorCode#NO_MEMORY], or
    ///   [io.kvferry.spi.ErrorCode#UNAVAILABLE] when the port cannot be bound
    public static StoreOwner start(Settings settings) {
        StoreSecret.requireToListen(settings.host(), settings.secret(), settings.insecure());
        var options = new HashMap<String, String>(Map.of("host", settings.host()));
        settings.secretFile().ifPresent(file -> options.put("secret-file", file.toString()));
        TransferEngine engine = JavaTransferEngine.start(EngineConfig.from(options));
        EmbeddedStore store = null;
        StoreOwner owner = null;
        try {
            store = open(settings, engine);
            owner = new StoreOwner(settings, store, engine);
            return owner;
        } finally {
            if (owner == null) {
                if (store != null) {
                    store.close();
                }
                engine.close();
            }
        }
    }

    private static EmbeddedStore open(Settings settings, TransferEngine engine) {
        if (settings.disk().isEmpty()) {
            return EmbeddedStore.open(fenced(settings.store()));
        }
        var tier =
                DiskTier.open(
                        settings.disk().get(),
                        bytes -> take(engine, bytes),
                        FileCalls.ofPlatform());
        return EmbeddedStore.open(fenced(settings.store()), tier);
    }

    /// The session of a writer revokes its puts when their grant is closed. That may take longer
    /// than any time that could be set here, and the memory must not be used again before.
    static StoreConfig fenced(StoreConfig store) {
        return store.withoutPutRelease();
    }

    private String open() {
        String host = settings.host();
        if (settings.port() == 0) {
            String listening = listen();
            mount(listening);
            return listening;
        }
        mount(host + ":" + settings.port());
        return listen();
    }

    private String listen() {
        int port = settings.port();
        String bound =
                channel.listen(settings.host(), settings.host(), port, port, server.requests());
        return bound.substring("tcp://".length());
    }

    private void mount(String segment) {
        store.mount(segment, settings.bytes(), bytes -> take(engine, bytes));
        server.ready(segment);
        LOG.info("segment {} of {} bytes is mounted", segment, settings.bytes());
    }

    /// Memory that users on this host reach without a socket, and that they write to by grants
    /// only.
    static SegmentMemory.Taken take(TransferEngine engine, long bytes) {
        var arena = Arena.ofShared();
        boolean done = false;
        try {
            RegisteredMemory memory = engine.allocate(bytes, Access.GRANTED, arena);
            var taken =
                    new SegmentMemory.Taken(
                            memory.memory(),
                            () -> {
                                memory.close();
                                arena.close();
                            });
            done = true;
            return taken;
        } finally {
            if (!done) {
                arena.close();
            }
        }
    }

    /// `host:port`, by which users reach it; also the name of its segment.
    public String address() {
        return address;
    }

    public EmbeddedStore store() {
        return store;
    }

    /// Users that have a session.
    public int users() {
        return server.sessions();
    }

    /// Why users cannot reach it, if that is so.
    public Optional<String> trouble() {
        return channel.trouble().or(engine::trouble);
    }

    @Override
    public void close() {
        channel.close();
        server.close();
        try {
            store.close();
        } finally {
            engine.close();
        }
    }
}
