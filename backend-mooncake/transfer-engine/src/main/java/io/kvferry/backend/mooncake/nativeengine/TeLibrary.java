// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.nativeengine;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.natives.NativeLibrary;

import org.jspecify.annotations.Nullable;

import java.lang.foreign.AddressLayout;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.StructLayout;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.nio.file.Path;
import java.util.Optional;

/// The one holder of method handles into `libtransfer_engine`. Functions that older releases lack
/// are optional.
///
/// Return codes come back as the library gives them; [NativeTransferEngine] turns them into errors.
@SuppressWarnings("restricted") // reads the strings and lists that the library returns
final class TeLibrary {
    /// `struct transfer_request`, 40 bytes.
    static final StructLayout REQUEST =
            MemoryLayout.structLayout(
                    JAVA_INT.withName("opcode"),
                    MemoryLayout.paddingLayout(4),
                    ADDRESS.withName("source"),
                    JAVA_INT.withName("target_id"),
                    MemoryLayout.paddingLayout(4),
                    JAVA_LONG.withName("target_offset"),
                    JAVA_LONG.withName("length"));

    /// `struct transfer_status`, 16 bytes.
    static final StructLayout STATUS =
            MemoryLayout.structLayout(
                    JAVA_INT.withName("status"),
                    MemoryLayout.paddingLayout(4),
                    JAVA_LONG.withName("transferred_bytes"));

    /// `struct notify_msg`, 16 bytes, passed by value.
    static final StructLayout NOTIFY =
            MemoryLayout.structLayout(ADDRESS.withName("name"), ADDRESS.withName("msg"));

    static final int COMPLETED = 4;
    static final int TIMED_OUT = 5;
    static final int FAILED = 6;
    static final long INVALID_BATCH = -1;

    private static final AddressLayout C_STRING =
            ADDRESS.withTargetLayout(
                    MemoryLayout.sequenceLayout(Long.MAX_VALUE, ValueLayout.JAVA_BYTE));

    private final MethodHandle create;
    private final MethodHandle destroy;
    private final MethodHandle localIpAndPort;
    private final MethodHandle installTransport;
    private final MethodHandle openSegment;
    private final @Nullable MethodHandle openSegmentNoCache;
    private final MethodHandle register;
    private final MethodHandle unregister;
    private final MethodHandle allocateBatch;
    private final MethodHandle submit;
    private final MethodHandle status;
    private final MethodHandle freeBatch;
    private final @Nullable MethodHandle getNotifications;
    private final @Nullable MethodHandle freeNotifications;
    private final @Nullable MethodHandle sendNotification;

    private TeLibrary(NativeLibrary library) {
        create =
                library.require(
                        "createTransferEngine",
                        ADDRESS,
                        ADDRESS,
                        ADDRESS,
                        ADDRESS,
                        JAVA_LONG,
                        JAVA_INT);
        destroy = library.require("destroyTransferEngine", FunctionDescriptor.ofVoid(ADDRESS));
        localIpAndPort =
                library.require("getLocalIpAndPort", JAVA_INT, ADDRESS, ADDRESS, JAVA_LONG);
        installTransport = library.require("installTransport", ADDRESS, ADDRESS, ADDRESS, ADDRESS);
        openSegment = library.require("openSegment", JAVA_INT, ADDRESS, ADDRESS);
        openSegmentNoCache =
                library.find(
                                "openSegmentNoCache",
                                FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS))
                        .orElse(null);
        register =
                library.require(
                        "registerLocalMemory",
                        JAVA_INT,
                        ADDRESS,
                        ADDRESS,
                        JAVA_LONG,
                        ADDRESS,
                        JAVA_INT);
        unregister = library.require("unregisterLocalMemory", JAVA_INT, ADDRESS, ADDRESS);
        allocateBatch = library.require("allocateBatchID", JAVA_LONG, ADDRESS, JAVA_LONG);
        submit =
                library.require("submitTransfer", JAVA_INT, ADDRESS, JAVA_LONG, ADDRESS, JAVA_LONG);
        status =
                library.require(
                        "getTransferStatus", JAVA_INT, ADDRESS, JAVA_LONG, JAVA_LONG, ADDRESS);
        freeBatch = library.require("freeBatchID", JAVA_INT, ADDRESS, JAVA_LONG);
        getNotifications =
                library.find(
                                "getNotifsFromEngine",
                                FunctionDescriptor.of(ADDRESS, ADDRESS, ADDRESS))
                        .orElse(null);
        freeNotifications =
                library.find("freeNotifsMsgBuf", FunctionDescriptor.ofVoid(ADDRESS, JAVA_INT))
                        .orElse(null);
        sendNotification =
                library.find(
                                "genNotifyInEngine",
                                FunctionDescriptor.of(JAVA_INT, ADDRESS, JAVA_LONG, NOTIFY))
                        .orElse(null);
    }

    /// Loads the library; it stays loaded until the JVM ends, because its threads do.
    ///
    /// @throws KvFerryException [ErrorCode#UNAVAILABLE] with the reason and how to get the library
    static TeLibrary load(Path path) {
        return new TeLibrary(
                NativeLibrary.load(
                        path.toAbsolutePath().toString(),
                        "Mooncake's transfer engine with its C API",
                        NativeTransferEngine.HOW_TO_GET));
    }

    MemorySegment create(MemorySegment metadata, MemorySegment name, MemorySegment ip, long port) {
        try {
            // Auto-discovery off: exactly the transport that is installed next, and no other,
            // carries the bytes.
            return (MemorySegment) create.invokeExact(metadata, name, ip, port, 0);
        } catch (Throwable t) {
            throw broken("createTransferEngine", t);
        }
    }

    void destroy(MemorySegment engine) {
        try {
            destroy.invokeExact(engine);
        } catch (Throwable t) {
            throw broken("destroyTransferEngine", t);
        }
    }

    String localIpAndPort(MemorySegment engine) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment buffer = arena.allocate(256);
            int rc = (int) localIpAndPort.invokeExact(engine, buffer, buffer.byteSize());
            if (rc != 0) {
                throw new KvFerryException(ErrorCode.INTERNAL, "getLocalIpAndPort returned " + rc);
            }
            return buffer.getString(0);
        } catch (KvFerryException e) {
            throw e;
        } catch (Throwable t) {
            throw broken("getLocalIpAndPort", t);
        }
    }

    MemorySegment installTransport(
            MemorySegment engine, MemorySegment protocol, MemorySegment arguments) {
        try {
            return (MemorySegment) installTransport.invokeExact(engine, protocol, arguments);
        } catch (Throwable t) {
            throw broken("installTransport", t);
        }
    }

    /// @param fresh not from the library's cache, where the release can do that
    int openSegment(MemorySegment engine, MemorySegment name, boolean fresh) {
        MethodHandle handle =
                fresh && openSegmentNoCache != null ? openSegmentNoCache : openSegment;
        try {
            return (int) handle.invokeExact(engine, name);
        } catch (Throwable t) {
            throw broken("openSegment", t);
        }
    }

    int register(MemorySegment engine, MemorySegment memory, MemorySegment location) {
        try {
            return (int) register.invokeExact(engine, memory, memory.byteSize(), location, 1);
        } catch (Throwable t) {
            throw broken("registerLocalMemory", t);
        }
    }

    int unregister(MemorySegment engine, MemorySegment memory) {
        try {
            return (int) unregister.invokeExact(engine, memory);
        } catch (Throwable t) {
            throw broken("unregisterLocalMemory", t);
        }
    }

    long allocateBatch(MemorySegment engine, long tasks) {
        try {
            return (long) allocateBatch.invokeExact(engine, tasks);
        } catch (Throwable t) {
            throw broken("allocateBatchID", t);
        }
    }

    int submit(MemorySegment engine, long batch, MemorySegment requests, long count) {
        try {
            return (int) submit.invokeExact(engine, batch, requests, count);
        } catch (Throwable t) {
            throw broken("submitTransfer", t);
        }
    }

    int status(MemorySegment engine, long batch, long task, MemorySegment result) {
        try {
            return (int) status.invokeExact(engine, batch, task, result);
        } catch (Throwable t) {
            throw broken("getTransferStatus", t);
        }
    }

    int freeBatch(MemorySegment engine, long batch) {
        try {
            return (int) freeBatch.invokeExact(engine, batch);
        } catch (Throwable t) {
            throw broken("freeBatchID", t);
        }
    }

    /// The message array, with its bounds; empty when there is nothing or the release cannot do it.
    Optional<MemorySegment> notifications(MemorySegment engine, MemorySegment count) {
        if (getNotifications == null || freeNotifications == null) {
            return Optional.empty();
        }
        try {
            MemorySegment list = (MemorySegment) getNotifications.invokeExact(engine, count);
            int messages = count.get(JAVA_INT, 0);
            return list.address() == 0 || messages <= 0
                    ? Optional.empty()
                    : Optional.of(list.reinterpret(messages * NOTIFY.byteSize()));
        } catch (Throwable t) {
            throw broken("getNotifsFromEngine", t);
        }
    }

    void freeNotifications(MemorySegment list, int count) {
        if (freeNotifications != null) {
            try {
                freeNotifications.invokeExact(list, count);
            } catch (Throwable t) {
                throw broken("freeNotifsMsgBuf", t);
            }
        }
    }

    /// -1 where the release cannot do it.
    int sendNotification(MemorySegment engine, long segment, MemorySegment message) {
        if (sendNotification == null) {
            return -1;
        }
        try {
            return (int) sendNotification.invokeExact(engine, segment, message);
        } catch (Throwable t) {
            throw broken("genNotifyInEngine", t);
        }
    }

    static String string(MemorySegment struct, long offset) {
        return struct.get(C_STRING, offset).getString(0);
    }

    private static AssertionError broken(String function, Throwable t) {
        if (t instanceof OutOfMemoryError full) { // of the call's arguments or result
            throw full;
        }
        return new AssertionError(function + " does not throw", t);
    }
}
