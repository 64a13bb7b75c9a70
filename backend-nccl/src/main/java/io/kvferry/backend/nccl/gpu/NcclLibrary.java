// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.gpu;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.natives.NativeLibrary;

import java.lang.foreign.AddressLayout;
import java.lang.foreign.Arena;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.StructLayout;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.nio.file.Path;
import java.util.Optional;

/// The one holder of method handles into `libnccl.so.2`, from NCCL 2.18 on.
///
/// Communicators, streams and device memory are addresses. Results come back as NCCL gives them;
/// [Communicator] turns them into errors.
///
/// Threading: as NCCL: one thread for each communicator, except [#abort].
@SuppressWarnings("restricted") // reads the strings that NCCL returns
public final class NcclLibrary {
    /// Names the library where it is not on the linker's path.
    public static final String VARIABLE = "KVFERRY_NCCL_LIB";

    public static final String NAME = "libnccl.so.2";

    public static final String HOW_TO_GET =
            "install NVIDIA's libnccl2, or the PyPI package nvidia-nccl-cu12 and set "
                    + VARIABLE
                    + " to its nvidia/nccl/lib/libnccl.so.2";

    static final int SUCCESS = 0;
    static final int IN_PROGRESS = 7;

    /// `ncclUint8`: KV travels as bytes, so that its type does not matter.
    static final int UINT8 = 1;

    static final int ID_BYTES = 128;

    /// `ncclUniqueId`, passed by value.
    static final StructLayout ID =
            MemoryLayout.structLayout(MemoryLayout.sequenceLayout(ID_BYTES, JAVA_BYTE));

    /// `ncclConfig_t` of NCCL 2.27, 72 bytes. Newer releases added fields at the end, and take this
    /// one by its size and version; older ones read the beginning.
    static final StructLayout CONFIG =
            MemoryLayout.structLayout(
                    JAVA_LONG.withName("size"),
                    JAVA_INT.withName("magic"),
                    JAVA_INT.withName("version"),
                    JAVA_INT.withName("blocking"),
                    JAVA_INT.withName("cgaClusterSize"),
                    JAVA_INT.withName("minCTAs"),
                    JAVA_INT.withName("maxCTAs"),
                    ADDRESS.withName("netName"),
                    JAVA_INT.withName("splitShare"),
                    JAVA_INT.withName("trafficClass"),
                    ADDRESS.withName("commName"),
                    JAVA_INT.withName("collnetEnable"),
                    JAVA_INT.withName("CTAPolicy"),
                    JAVA_INT.withName("shrinkShare"),
                    JAVA_INT.withName("nvlsCTAs"));

    private static final int MAGIC = 0xcafebeef;
    private static final int UNDEFINED = Integer.MIN_VALUE;

    /// The release of [#CONFIG].
    private static final int CONFIG_VERSION = 22703;

    /// The last release of the shorter form, whose fields end with `splitShare`.
    private static final int SHORT_CONFIG_VERSION = 21800;

    private static final long SHORT_CONFIG_BYTES = 48;
    private static final int OLDEST = 21800;

    private static final AddressLayout C_STRING =
            ADDRESS.withTargetLayout(MemoryLayout.sequenceLayout(Long.MAX_VALUE, JAVA_BYTE));

    private final String from;
    private final int version;

    private final MethodHandle getVersion;
    private final MethodHandle getErrorString;
    private final MethodHandle getLastError;
    private final MethodHandle getUniqueId;
    private final MethodHandle commInitRankConfig;
    private final MethodHandle commGetAsyncError;
    private final MethodHandle commCount;
    private final MethodHandle commUserRank;
    private final MethodHandle commFinalize;
    private final MethodHandle commDestroy;
    private final MethodHandle commAbort;
    private final MethodHandle send;
    private final MethodHandle recv;
    private final MethodHandle groupStart;
    private final MethodHandle groupEnd;

    private NcclLibrary(NativeLibrary library) {
        from = library.file();
        getVersion = library.require("ncclGetVersion", JAVA_INT, ADDRESS);
        getErrorString = library.require("ncclGetErrorString", C_STRING, JAVA_INT);
        getLastError = library.require("ncclGetLastError", C_STRING, JAVA_LONG);
        getUniqueId = library.require("ncclGetUniqueId", JAVA_INT, ADDRESS);
        commInitRankConfig =
                library.require(
                        "ncclCommInitRankConfig",
                        JAVA_INT,
                        ADDRESS,
                        JAVA_INT,
                        ID,
                        JAVA_INT,
                        ADDRESS);
        commGetAsyncError = library.require("ncclCommGetAsyncError", JAVA_INT, JAVA_LONG, ADDRESS);
        commCount = library.require("ncclCommCount", JAVA_INT, JAVA_LONG, ADDRESS);
        commUserRank = library.require("ncclCommUserRank", JAVA_INT, JAVA_LONG, ADDRESS);
        commFinalize = library.require("ncclCommFinalize", JAVA_INT, JAVA_LONG);
        commDestroy = library.require("ncclCommDestroy", JAVA_INT, JAVA_LONG);
        commAbort = library.require("ncclCommAbort", JAVA_INT, JAVA_LONG);
        MemoryLayout[] transfer = {JAVA_LONG, JAVA_LONG, JAVA_INT, JAVA_INT, JAVA_LONG, JAVA_LONG};
        send = library.require("ncclSend", JAVA_INT, transfer);
        recv = library.require("ncclRecv", JAVA_INT, transfer);
        groupStart = library.require("ncclGroupStart", JAVA_INT);
        groupEnd = library.require("ncclGroupEnd", JAVA_INT);
        version = readVersion();
    }

    /// Loads the library that [#VARIABLE] names, else the one on the linker's path. It stays loaded
    /// until the JVM ends, because its threads do.
    ///
    /// @throws KvFerryException [ErrorCode#UNAVAILABLE] with the reason and how to get it
    public static NcclLibrary load() {
        var named = Optional.ofNullable(System.getenv(VARIABLE)).filter(text -> !text.isEmpty());
        return named.isPresent() ? load(Path.of(named.get())) : load(NAME);
    }

    /// Loads this file.
    public static NcclLibrary load(Path file) {
        return load(file.toAbsolutePath().toString());
    }

    private static NcclLibrary load(String name) {
        var library = new NcclLibrary(NativeLibrary.load(name, "NCCL 2.18 or newer", HOW_TO_GET));
        if (library.version < OLDEST) {
            throw new KvFerryException(
                    ErrorCode.UNAVAILABLE,
                    name + " is NCCL " + library.versionText() + ", needed is 2.18 or newer");
        }
        return library;
    }

    /// The name or path with which the library was loaded.
    public String from() {
        return from;
    }

    /// Such as 22703 for 2.27.3.
    public int version() {
        return version;
    }

    public String versionText() {
        return version / 10_000 + "." + version / 100 % 100 + "." + version % 100;
    }

    private int readVersion() {
        try (var arena = Arena.ofConfined()) {
            var out = arena.allocate(JAVA_INT);
            checked((int) getVersion.invokeExact(out), "ncclGetVersion");
            return out.get(JAVA_INT, 0);
        } catch (Throwable e) {
            throw rethrown(e);
        }
    }

    /// What a result means.
    String errorText(int result) {
        try {
            return ((MemorySegment) getErrorString.invokeExact(result)).getString(0);
        } catch (Throwable e) {
            throw rethrown(e);
        }
    }

    /// NCCL's own words about the last failure.
    String lastError(long communicator) {
        try {
            var text = (MemorySegment) getLastError.invokeExact(communicator);
            return text.address() == 0 ? "" : text.getString(0);
        } catch (Throwable e) {
            throw rethrown(e);
        }
    }

    /// A new id, for one communicator. It starts a thread of NCCL that waits for the ranks.
    ///
    /// @throws KvFerryException [ErrorCode#IO]
    public byte[] uniqueId() {
        try (var arena = Arena.ofConfined()) {
            var id = arena.allocate(ID);
            checked((int) getUniqueId.invokeExact(id), "ncclGetUniqueId");
            return id.toArray(JAVA_BYTE);
        } catch (Throwable e) {
            throw rethrown(e);
        }
    }

    /// Begins to make a communicator of two ranks; [#asyncError] says when it is ready.
    ///
    /// @param communicator receives its address, which may be 0 when it fails
    /// @return the result, [#IN_PROGRESS] as a rule
    int initialize(MemorySegment communicator, byte[] uniqueId, int rank, int channels) {
        try (var arena = Arena.ofConfined()) {
            var id = arena.allocate(ID);
            MemorySegment.copy(uniqueId, 0, id, JAVA_BYTE, 0, ID_BYTES);
            var config = config(arena, channels);
            return (int) commInitRankConfig.invokeExact(communicator, 2, id, rank, config);
        } catch (Throwable e) {
            throw rethrown(e);
        }
    }

    private MemorySegment config(Arena arena, int channels) {
        boolean whole = version >= CONFIG_VERSION;
        var config = arena.allocate(CONFIG);
        for (long at = offset("blocking"); at < CONFIG.byteSize(); at += Integer.BYTES) {
            config.set(JAVA_INT, at, UNDEFINED);
        }
        put(config, "netName", MemorySegment.NULL);
        put(config, "commName", MemorySegment.NULL);
        config.set(JAVA_LONG, 0, whole ? CONFIG.byteSize() : SHORT_CONFIG_BYTES);
        put(config, "magic", MAGIC);
        put(config, "version", whole ? CONFIG_VERSION : SHORT_CONFIG_VERSION);
        put(config, "blocking", 0);
        if (channels > 0) {
            put(config, "minCTAs", channels);
            put(config, "maxCTAs", channels);
        }
        return config;
    }

    private static void put(MemorySegment config, String field, int value) {
        config.set(JAVA_INT, offset(field), value);
    }

    private static void put(MemorySegment config, String field, MemorySegment value) {
        config.set(ValueLayout.ADDRESS, offset(field), value);
    }

    private static long offset(String field) {
        return CONFIG.byteOffset(MemoryLayout.PathElement.groupElement(field));
    }

    /// The state of a communicator, by way of `out`, an int: 0, [#IN_PROGRESS], or what went wrong.
    int asyncError(long communicator, MemorySegment out) {
        return query(commGetAsyncError, communicator, out);
    }

    int count(long communicator, MemorySegment out) {
        return query(commCount, communicator, out);
    }

    int rank(long communicator, MemorySegment out) {
        return query(commUserRank, communicator, out);
    }

    private int query(MethodHandle what, long communicator, MemorySegment out) {
        try {
            checked((int) what.invokeExact(communicator, out), "a query of NCCL");
            return out.get(JAVA_INT, 0);
        } catch (Throwable e) {
            throw rethrown(e);
        }
    }

    int groupStart() {
        try {
            return (int) groupStart.invokeExact();
        } catch (Throwable e) {
            throw rethrown(e);
        }
    }

    int groupEnd() {
        try {
            return (int) groupEnd.invokeExact();
        } catch (Throwable e) {
            throw rethrown(e);
        }
    }

    int send(long buffer, long bytes, int peer, long communicator, long stream) {
        try {
            return (int) send.invokeExact(buffer, bytes, UINT8, peer, communicator, stream);
        } catch (Throwable e) {
            throw rethrown(e);
        }
    }

    int receive(long buffer, long bytes, int peer, long communicator, long stream) {
        try {
            return (int) recv.invokeExact(buffer, bytes, UINT8, peer, communicator, stream);
        } catch (Throwable e) {
            throw rethrown(e);
        }
    }

    int finish(long communicator) {
        return call(commFinalize, communicator);
    }

    int destroy(long communicator) {
        return call(commDestroy, communicator);
    }

    /// Ends what a communicator does and frees it. Any thread; it may take long.
    int abort(long communicator) {
        return call(commAbort, communicator);
    }

    private static int call(MethodHandle what, long communicator) {
        try {
            return (int) what.invokeExact(communicator);
        } catch (Throwable e) {
            throw rethrown(e);
        }
    }

    private void checked(int result, String call) {
        if (result != SUCCESS) {
            throw new KvFerryException(ErrorCode.IO, call + ": " + errorText(result));
        }
    }

    /// A call of NCCL throws nothing but what this class threw.
    private static RuntimeException rethrown(Throwable e) {
        if (e instanceof RuntimeException known) {
            return known;
        }
        throw new AssertionError("calls of NCCL do not throw", e);
    }
}
