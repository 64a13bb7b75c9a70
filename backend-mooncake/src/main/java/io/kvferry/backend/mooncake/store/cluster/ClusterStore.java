// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.cluster;

import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.ReplicaDescriptor;
import io.kvferry.backend.mooncake.store.Store;
import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.backend.mooncake.store.StoreUsage;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Finding;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.doctor.Machine;

import org.jspecify.annotations.Nullable;

import java.lang.foreign.MemorySegment;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.time.Duration;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.ToLongFunction;

/// One user of a Mooncake cluster. While the master is away calls are answered with its codes; the
/// library connects again by itself.
///
/// Keys in the cluster are `kvferry:<16 hex digits of the identity>@<key>`: who has another
/// identity neither finds nor removes an object, and removals leave what others keep in the
/// cluster. It is a name and no protection, since Mooncake trusts everybody who reaches it. A store
/// of [#openPlain] shares keys and values with others instead.
///
/// Values go through staging memory, so memory of an engine is touched by the calling thread alone,
/// and a call of the library that does not return ends in RPC_TIMEOUT. The API has no buffers per
/// key, descriptors, groups, lookups without a lease, or time of a soft pin (the master's counts).
///
/// Threading: any thread.
public final class ClusterStore implements Store {
    private final ClusterClient client;
    private final String prefix;
    private final Map<Long, Integer> registered = new HashMap<>();
    private final AtomicBoolean closed = new AtomicBoolean();
    private volatile String noRoom = "";

    /// What is removed by [#removeAll], as a regular expression.
    private final String all;

    /// Whether values carry a [ValueTrailer].
    private final boolean sealed;

    private ClusterStore(ClusterClient client, String prefix, String all, boolean sealed) {
        this.client = client;
        this.prefix = prefix;
        this.all = all;
        this.sealed = sealed;
    }

    /// Opens the store, whether the master is there or not; waits for the first attempt as long as
    /// for a question.
    ///
    /// @throws io.kvferry.spi.KvFerryException [io.kvferry.spi.ErrorCode#UNAVAILABLE] without the
    ///   library
    public static ClusterStore open(ClusterConfig config, StoreIdentity identity) {
        var client = ClusterClient.use(config);
        client.awaitFirstTry(Deadline.in(config.askLimit()));
        String prefix = prefix(identity);
        return new ClusterStore(client, prefix, "^" + prefix + ".*$", true);
    }

    /// Opens the store for keys and values as other users of the cluster have them: keys as they
    /// are given, values without a checksum. Nothing tells values of another layout apart but their
    /// length, and nothing that could not be read is removed.
    ///
    /// @param start of the keys that [#removeAll] removes
    /// @throws KvFerryException as of [#open]; [ErrorCode#INCOMPATIBLE] for a tenant where the
    ///   library knows none: the keys would be those of all tenants
    public static ClusterStore openPlain(ClusterConfig config, String start) {
        var client = ClusterClient.use(config);
        if (!client.tellsTenantsApart()) {
            client.release();
            throw new KvFerryException(
                    ErrorCode.INCOMPATIBLE,
                    "tenant "
                            + config.tenant()
                            + " with keys as others write them: this release of Mooncake's library"
                            + " knows no tenants, and such keys name none");
        }
        client.awaitFirstTry(Deadline.in(config.askLimit()));
        return new ClusterStore(client, "", "^" + Expressions.literal(start) + ".*$", false);
    }

    /// What `kvferry doctor` says of the library.
    public static Finding diagnose() {
        return Machine.library(
                "Mooncake store (C)",
                ClusterConfig.LIBRARY_VARIABLE,
                "libmooncake_store.so",
                "MooncakeStoreConnector on a Mooncake cluster: " + StoreLibrary.HOW_TO_GET);
    }

    private static String prefix(StoreIdentity identity) {
        try {
            var digest = MessageDigest.getInstance("SHA-256");
            for (String part : List.of(identity.tenant(), identity.model(), identity.layout())) {
                byte[] utf8 = part.getBytes(StandardCharsets.UTF_8);
                digest.update((utf8.length + ":").getBytes(StandardCharsets.UTF_8));
                digest.update(utf8);
            }
            return "kvferry:" + HexFormat.of().formatHex(digest.digest(), 0, 8) + "@";
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException("every JDK has SHA-256", e);
        }
    }

    @Override
    public Set<Feature> features() {
        return sealed ? EnumSet.of(Feature.TENANTS) : EnumSet.noneOf(Feature.class);
    }

    @Override
    public int register(MemorySegment memory) {
        if (!memory.isNative()) {
            return StoreCode.INVALID_PARAMS.number();
        }
        synchronized (registered) {
            registered.merge(memory.address(), 1, Integer::sum);
        }
        return 0;
    }

    @Override
    public int unregister(MemorySegment memory) {
        synchronized (registered) {
            Integer count = registered.remove(memory.address());
            if (count == null) {
                return StoreCode.INVALID_PARAMS.number();
            }
            if (count > 1) {
                registered.put(memory.address(), count - 1);
            }
            return 0;
        }
    }

    /// 0 when calls can be made.
    private int away() {
        if (closed.get()) {
            return StoreCode.UNAVAILABLE_IN_CURRENT_STATUS.number();
        }
        return client.store().address() == 0 ? StoreCode.RPC_FAIL.number() : 0;
    }

    /// The code of keys for which there was no lane in time.
    private int noLane() {
        int away = away();
        return away != 0 ? away : StoreCode.RPC_TIMEOUT.number();
    }

    /// A call of the library, for who has the lane.
    private long call(Lane lane, Deadline limit, ToLongFunction<MemorySegment> call) {
        MemorySegment store = client.store();
        if (store.address() == 0) {
            return away();
        }
        return lane.run(() -> call.applyAsLong(store), limit);
    }

    /// A code for what [Lane#run] answered.
    private static int code(long answer) {
        return answer == Lane.ABANDONED ? StoreCode.RPC_TIMEOUT.number() : (int) answer;
    }

    private static boolean isNoKey(String key) {
        return key.indexOf('\0') >= 0; // where C takes the string to end
    }

    @Override
    public void put(StoreBatch batch, PutOptions options, int[] results) {
        int away = away();
        if (away != 0 || !options.areValid()) {
            int code = away != 0 ? away : StoreCode.INVALID_PARAMS.number();
            Arrays.fill(results, 0, batch.size(), code);
            return;
        }
        var limit = Deadline.in(client.config().moveLimit());
        for (int from = 0; from < batch.size(); ) {
            Lane lane = client.moves().take(limit);
            if (lane == null) {
                Arrays.fill(results, from, batch.size(), noLane());
                return;
            }
            boolean mine = true;
            try {
                CallMemory memory = lane.memory().sealing(sealed);
                MemorySegment config = memory.config(options);
                from = gather(memory, batch, from, results);
                if (memory.count() > 0) {
                    long answer = call(lane, limit, store -> putInto(store, memory, config));
                    mine = answer != Lane.ABANDONED;
                    finishPut(memory, code(answer), mine, batch, results);
                }
            } finally {
                if (mine) {
                    client.moves().give(lane);
                }
            }
        }
    }

    /// Fills a call with the values of keys from `from` on.
    ///
    /// @return the first key that is not in it
    private int gather(CallMemory memory, StoreBatch batch, int from, int[] results) {
        int next = from;
        for (; next < batch.size(); next++) {
            long bytes = batch.bytes(next);
            String key = batch.key(next);
            if (key.isEmpty() || bytes == 0 || isNoKey(key)) {
                results[next] = StoreCode.INVALID_PARAMS.number();
                continue;
            }
            int code = add(memory, key, next, bytes);
            if (code == FULL) {
                return next;
            }
            results[next] = code;
            if (code == 0) {
                // Whatever happens to the call, no other answer is taken for this key's.
                results[next] = StoreCode.RPC_TIMEOUT.number();
                memory.gather(batch, next);
            }
        }
        return next;
    }

    private static final int FULL = 1;

    /// 0, [#FULL] where another call has room, or a code.
    private int add(CallMemory memory, String key, int position, long bytes) {
        try {
            if (memory.add(prefix + key, position, bytes)) {
                return 0;
            }
        } catch (OutOfMemoryError _) {
            return StoreCode.BUFFER_OVERFLOW.number();
        }
        return memory.count() > 0 ? FULL : StoreCode.INVALID_PARAMS.number();
    }

    private long putInto(MemorySegment store, CallMemory memory, MemorySegment config) {
        int code = memory.register(client.library(), store);
        if (code != 0) {
            return code;
        }
        try {
            memory.presetInts(StoreCode.INTERNAL.number());
            long start = System.nanoTime();
            code = client.library().batchPutFrom(store, memory, config);
            memory.looksForTransfers(code, false, Duration.ofNanos(System.nanoTime() - start));
            return code;
        } finally {
            memory.unregister(client.library(), store);
        }
    }

    /// @param mine whether the results can be read: the call has returned
    private void finishPut(
            CallMemory memory, int code, boolean mine, StoreBatch batch, int[] results) {
        if (!mine) {
            return; // the keys have their code already
        }
        for (int i = 0; i < memory.count(); i++) {
            int position = memory.position(i);
            int result = code != 0 ? code : Math.min(0, memory.intResult(i));
            if (result == StoreCode.OBJECT_ALREADY_EXISTS.number()) {
                result = 0;
            }
            if (result == StoreCode.NO_AVAILABLE_HANDLE.number()) {
                noRoom =
                        "no room for "
                                + batch.bytes(position)
                                + " bytes in the Mooncake cluster at "
                                + client.config().master();
            }
            results[position] = result;
        }
    }

    @Override
    public void get(StoreBatch batch, long[] results) {
        int away = away();
        if (away != 0) {
            Arrays.fill(results, 0, batch.size(), away);
            return;
        }
        var limit = Deadline.in(client.config().moveLimit());
        for (int from = 0; from < batch.size(); ) {
            from = read(batch, from, batch.size(), results, limit);
        }
        for (int i = 0; sealed && i < batch.size(); i++) {
            if (results[i] == StoreCode.CHECKSUM_MISMATCH.number()) {
                readAgain(batch, i, results, limit);
            }
        }
    }

    /// Bytes that are not those of the object can come from a lease that ended during the copy. An
    /// object that is damaged itself would be found for ever and never be replaced, so it goes.
    private void readAgain(StoreBatch batch, int index, long[] results, Deadline limit) {
        read(batch, index, index + 1, results, limit);
        if (results[index] == StoreCode.CHECKSUM_MISMATCH.number()) {
            remove(batch.key(index), true);
        }
    }

    /// Reads keys of one call.
    ///
    /// @return the first key that was not in it
    private int read(StoreBatch batch, int from, int to, long[] results, Deadline limit) {
        Lane lane = client.moves().take(limit);
        if (lane == null) {
            Arrays.fill(results, from, to, noLane());
            return to;
        }
        boolean mine = true;
        try {
            CallMemory memory = lane.memory().sealing(sealed);
            int next = from;
            for (; next < to; next++) {
                String key = batch.key(next);
                int code =
                        isNoKey(key)
                                ? StoreCode.OBJECT_NOT_FOUND.number()
                                : add(memory, key, next, batch.bytes(next));
                if (code == FULL) {
                    break;
                }
                results[next] = code == 0 ? StoreCode.RPC_TIMEOUT.number() : code;
            }
            if (memory.count() > 0) {
                long answer = call(lane, limit, store -> getInto(store, memory));
                mine = answer != Lane.ABANDONED;
                if (mine) {
                    finishGet(memory, code(answer), batch, results);
                }
            }
            return next;
        } finally {
            if (mine) {
                client.moves().give(lane);
            }
        }
    }

    private long getInto(MemorySegment store, CallMemory memory) {
        int code = memory.register(client.library(), store);
        if (code != 0) {
            return code;
        }
        try {
            memory.presetLongs(StoreCode.INTERNAL.number());
            long start = System.nanoTime();
            code = client.library().batchGetInto(store, memory);
            memory.looksForTransfers(code, true, Duration.ofNanos(System.nanoTime() - start));
            return code;
        } finally {
            memory.unregister(client.library(), store);
        }
    }

    private static void finishGet(CallMemory memory, int code, StoreBatch batch, long[] results) {
        for (int i = 0; i < memory.count(); i++) {
            long result = code != 0 ? code : memory.longResult(i);
            if (result >= 0) {
                long bytes = memory.scatter(batch, i, result);
                result = bytes < 0 ? StoreCode.CHECKSUM_MISMATCH.number() : bytes;
            }
            results[memory.position(i)] = result;
        }
    }

    @Override
    public void exists(List<String> keys, boolean lease, int[] results) {
        int away = away();
        if (away != 0) {
            Arrays.fill(results, 0, keys.size(), away);
            return;
        }
        var limit = Deadline.in(client.config().askLimit());
        for (int from = 0; from < keys.size(); ) {
            from = look(keys, from, results, limit);
        }
    }

    private int look(List<String> keys, int from, int[] results, Deadline limit) {
        Lane lane = client.queries().take(limit);
        if (lane == null) {
            Arrays.fill(results, from, keys.size(), noLane());
            return keys.size();
        }
        boolean mine = true;
        try {
            CallMemory memory = lane.memory();
            int next = from;
            for (; next < keys.size(); next++) {
                String key = keys.get(next);
                results[next] = StoreCode.RPC_TIMEOUT.number();
                if (isNoKey(key)) {
                    results[next] = 0;
                } else if (!memory.add(prefix + key, next)) {
                    if (memory.count() > 0) {
                        break;
                    }
                    results[next] = StoreCode.INVALID_PARAMS.number();
                }
            }
            if (memory.count() > 0) {
                long answer =
                        call(
                                lane,
                                limit,
                                store -> {
                                    memory.presetInts(StoreCode.INTERNAL.number());
                                    return client.library().batchIsExist(store, memory);
                                });
                mine = answer != Lane.ABANDONED;
                if (mine) {
                    for (int i = 0; i < memory.count(); i++) {
                        results[memory.position(i)] =
                                answer != 0 ? (int) answer : memory.intResult(i);
                    }
                }
            }
            return next;
        } finally {
            if (mine) {
                client.queries().give(lane);
            }
        }
    }

    @Override
    public void describe(List<String> keys, @Nullable ReplicaDescriptor[] found, int[] results) {
        Arrays.fill(found, 0, keys.size(), null);
        int away = away();
        Arrays.fill(results, 0, keys.size(), away != 0 ? away : StoreCode.NOT_SUPPORTED.number());
    }

    /// A call that takes one string.
    private long ask(String text, Question question) {
        int away = away();
        if (away != 0) {
            return away;
        }
        var limit = Deadline.in(client.config().askLimit());
        Lane lane = client.queries().take(limit);
        if (lane == null) {
            return noLane();
        }
        boolean mine = true;
        try {
            MemorySegment string = isNoKey(text) ? null : lane.memory().text(text);
            if (string == null) {
                return StoreCode.INVALID_PARAMS.number();
            }
            long answer = call(lane, limit, store -> question.ask(store, string));
            mine = answer != Lane.ABANDONED;
            return mine ? answer : StoreCode.RPC_TIMEOUT.number();
        } finally {
            if (mine) {
                client.queries().give(lane);
            }
        }
    }

    private interface Question {
        long ask(MemorySegment store, MemorySegment text);
    }

    @Override
    public long size(String key) {
        long bytes = ask(prefix + key, client.library()::getSize);
        if (bytes < 0 || !sealed) {
            return bytes;
        }
        return bytes < ValueTrailer.BYTES
                ? StoreCode.CHECKSUM_MISMATCH.number()
                : bytes - ValueTrailer.BYTES;
    }

    @Override
    public int remove(String key, boolean force) {
        return (int)
                ask(prefix + key, (store, text) -> client.library().remove(store, text, force));
    }

    /// INVALID_PARAMS also for expressions that the library would read otherwise than Java.
    @Override
    public long removeByRegex(String regex, boolean force) {
        if (!Expressions.areSame(regex)) {
            return StoreCode.INVALID_PARAMS.number();
        }
        return removeMatching("^" + prefix + "(?:" + regex + ")$", force);
    }

    @Override
    public long removeAll(boolean force) {
        return removeMatching(all, force);
    }

    private long removeMatching(String expression, boolean force) {
        return ask(expression, (store, text) -> client.library().removeByRegex(store, text, force));
    }

    @Override
    public String noRoom() {
        return noRoom;
    }

    @Override
    public Removals removals() {
        return Removals.NONE;
    }

    @Override
    public Optional<StoreUsage> usage() {
        return Optional.empty();
    }

    @Override
    public int healthCheck() {
        int away = away();
        return away != 0 ? away : client.health();
    }

    @Override
    public void close() {
        if (closed.compareAndSet(false, true)) {
            client.release();
        }
    }
}
