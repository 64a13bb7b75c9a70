// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.cluster;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.natives.NativeLibrary;

import org.jspecify.annotations.Nullable;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.StructLayout;
import java.lang.invoke.MethodHandle;
import java.nio.file.Path;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;

/// The one holder of method handles into `libmooncake_store` (`store_c.h`). Return codes come back
/// as the library gives them: 0, a count, or Mooncake's negative code.
///
/// Threading: any thread, as far as the library goes. `create` blocks SIGINT, SIGTERM, SIGHUP and
/// SIGUSR1 in the thread that calls it, so it belongs on a thread of its own.
final class StoreLibrary {
    /// For messages and for `kvferry doctor`.
    static final String HOW_TO_GET =
            "Build Mooncake with -DWITH_STORE_C_SHARED=ON, or take the Python wheel"
                    + " tokenspeed-mooncake (interop/install-peers store), and name"
                    + " libmooncake_store.so in the option 'library' or in "
                    + ClusterConfig.LIBRARY_VARIABLE
                    + ". Or take kvferry's own store, which needs no library: kvferry owner, and option store=host:port";

    private static final String FILE = "libmooncake_store.so";
    private static final Map<String, StoreLibrary> LOADED = new ConcurrentHashMap<>();

    /// `struct mooncake_replicate_config`, 32 bytes.
    static final StructLayout REPLICATE =
            MemoryLayout.structLayout(
                    JAVA_LONG.withName("replica_num"),
                    JAVA_INT.withName("with_soft_pin"),
                    JAVA_INT.withName("with_hard_pin"),
                    ADDRESS.withName("preferred_segments"),
                    JAVA_LONG.withName("preferred_segments_count"));

    private final MethodHandle create;
    private final MethodHandle destroy;
    private final MethodHandle setup;
    private final @Nullable MethodHandle setupWithTenant;
    private final MethodHandle healthCheck;
    private final MethodHandle batchPutFrom;
    private final MethodHandle batchGetInto;
    private final MethodHandle batchIsExist;
    private final MethodHandle getSize;
    private final MethodHandle remove;
    private final MethodHandle removeByRegex;
    private final MethodHandle registerBuffer;
    private final MethodHandle unregisterBuffer;

    private StoreLibrary(NativeLibrary library) {
        create = library.require("mooncake_store_create", ADDRESS);
        destroy = library.require("mooncake_store_destroy", FunctionDescriptor.ofVoid(ADDRESS));
        setup =
                library.require(
                        "mooncake_store_setup",
                        JAVA_INT,
                        ADDRESS,
                        ADDRESS,
                        ADDRESS,
                        JAVA_LONG,
                        JAVA_LONG,
                        ADDRESS,
                        ADDRESS,
                        ADDRESS);
        setupWithTenant =
                library.find(
                                "mooncake_store_setup_with_tenant",
                                FunctionDescriptor.of(
                                        JAVA_INT, ADDRESS, ADDRESS, ADDRESS, JAVA_LONG, JAVA_LONG,
                                        ADDRESS, ADDRESS, ADDRESS, ADDRESS))
                        .orElse(null);
        healthCheck = library.require("mooncake_store_health_check", JAVA_INT, ADDRESS);
        batchPutFrom =
                library.require(
                        "mooncake_store_batch_put_from",
                        JAVA_INT,
                        ADDRESS,
                        ADDRESS,
                        ADDRESS,
                        ADDRESS,
                        JAVA_LONG,
                        ADDRESS,
                        ADDRESS);
        batchGetInto =
                library.require(
                        "mooncake_store_batch_get_into",
                        JAVA_INT,
                        ADDRESS,
                        ADDRESS,
                        ADDRESS,
                        ADDRESS,
                        JAVA_LONG,
                        ADDRESS);
        batchIsExist =
                library.require(
                        "mooncake_store_batch_is_exist",
                        JAVA_INT,
                        ADDRESS,
                        ADDRESS,
                        JAVA_LONG,
                        ADDRESS);
        getSize = library.require("mooncake_store_get_size", JAVA_LONG, ADDRESS, ADDRESS);
        remove = library.require("mooncake_store_remove", JAVA_INT, ADDRESS, ADDRESS, JAVA_INT);
        removeByRegex =
                library.require(
                        "mooncake_store_remove_by_regex", JAVA_LONG, ADDRESS, ADDRESS, JAVA_INT);
        registerBuffer =
                library.require(
                        "mooncake_store_register_buffer", JAVA_INT, ADDRESS, ADDRESS, JAVA_LONG);
        unregisterBuffer =
                library.require("mooncake_store_unregister_buffer", JAVA_INT, ADDRESS, ADDRESS);
    }

    /// Loads the library; it stays loaded until the JVM ends, because its threads do.
    ///
    /// @param file empty for [ClusterConfig#LIBRARY_VARIABLE], else the linker's search
    /// @throws KvFerryException [io.kvferry.spi.ErrorCode#UNAVAILABLE] with the reason and how to
    ///   get the library
    static StoreLibrary load(Optional<Path> file) {
        var named =
                file.map(Path::toString)
                        .or(() ->
                                Optional.ofNullable(System.getenv(ClusterConfig.LIBRARY_VARIABLE))
                                        .filter(text -> !text.isBlank()));
        var name = named.orElse(FILE);
        return LOADED.computeIfAbsent(
                name.equals(FILE) ? name : Path.of(name).toAbsolutePath().toString(),
                StoreLibrary::link);
    }

    private static StoreLibrary link(String name) {
        return new StoreLibrary(
                NativeLibrary.load(name, "Mooncake's store with its C API", HOW_TO_GET));
    }

    /// Whether the library sends tenants to the master.
    boolean knowsTenants() {
        return setupWithTenant != null;
    }

    MemorySegment create() {
        try {
            return (MemorySegment) create.invokeExact();
        } catch (Throwable t) {
            throw broken("create", t);
        }
    }

    void destroy(MemorySegment store) {
        try {
            destroy.invokeExact(store);
        } catch (Throwable t) {
            throw broken("destroy", t);
        }
    }

    int setup(MemorySegment store, ClusterConfig config, String host) {
        try (Arena strings = Arena.ofConfined()) {
            var local = strings.allocateFrom(host);
            var metadata = strings.allocateFrom(config.metadata());
            var protocol = strings.allocateFrom(config.protocol());
            var device = strings.allocateFrom(config.device());
            var master = strings.allocateFrom(config.master());
            long segment = config.segmentBytes();
            long buffer = config.localBufferBytes();
            if (setupWithTenant == null) {
                return (int)
                        setup.invokeExact(
                                store, local, metadata, segment, buffer, protocol, device, master);
            }
            var tenant = strings.allocateFrom(config.tenant());
            return (int)
                    setupWithTenant.invokeExact(
                            store, local, metadata, segment, buffer, protocol, device, master,
                            tenant);
        } catch (Throwable t) {
            throw broken("setup", t);
        }
    }

    int healthCheck(MemorySegment store) {
        try {
            return (int) healthCheck.invokeExact(store);
        } catch (Throwable t) {
            throw broken("health_check", t);
        }
    }

    int batchPutFrom(MemorySegment store, CallMemory call, MemorySegment config) {
        try {
            return (int)
                    batchPutFrom.invokeExact(
                            store,
                            call.keys(),
                            call.buffers(),
                            call.sizes(),
                            (long) call.count(),
                            config,
                            call.results());
        } catch (Throwable t) {
            throw broken("batch_put_from", t);
        }
    }

    int batchGetInto(MemorySegment store, CallMemory call) {
        try {
            return (int)
                    batchGetInto.invokeExact(
                            store,
                            call.keys(),
                            call.buffers(),
                            call.sizes(),
                            (long) call.count(),
                            call.results());
        } catch (Throwable t) {
            throw broken("batch_get_into", t);
        }
    }

    int batchIsExist(MemorySegment store, CallMemory call) {
        try {
            return (int)
                    batchIsExist.invokeExact(
                            store, call.keys(), (long) call.count(), call.results());
        } catch (Throwable t) {
            throw broken("batch_is_exist", t);
        }
    }

    long getSize(MemorySegment store, MemorySegment key) {
        try {
            return (long) getSize.invokeExact(store, key);
        } catch (Throwable t) {
            throw broken("get_size", t);
        }
    }

    int remove(MemorySegment store, MemorySegment key, boolean force) {
        try {
            return (int) remove.invokeExact(store, key, force ? 1 : 0);
        } catch (Throwable t) {
            throw broken("remove", t);
        }
    }

    long removeByRegex(MemorySegment store, MemorySegment pattern, boolean force) {
        try {
            return (long) removeByRegex.invokeExact(store, pattern, force ? 1 : 0);
        } catch (Throwable t) {
            throw broken("remove_by_regex", t);
        }
    }

    int registerBuffer(MemorySegment store, MemorySegment memory) {
        try {
            return (int) registerBuffer.invokeExact(store, memory, memory.byteSize());
        } catch (Throwable t) {
            throw broken("register_buffer", t);
        }
    }

    int unregisterBuffer(MemorySegment store, MemorySegment memory) {
        try {
            return (int) unregisterBuffer.invokeExact(store, memory);
        } catch (Throwable t) {
            throw broken("unregister_buffer", t);
        }
    }

    private static AssertionError broken(String function, Throwable t) {
        return new AssertionError("mooncake_store_" + function + " does not throw", t);
    }
}
