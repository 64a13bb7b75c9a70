// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.remote;

import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.ReplicaDescriptor;
import io.kvferry.backend.mooncake.store.Store;
import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.backend.mooncake.store.StoreUsage;
import io.kvferry.backend.mooncake.store.remote.OwnerLink.Session;
import io.kvferry.backend.mooncake.store.remote.StoreProtocol.Operation;
import io.kvferry.backend.mooncake.store.remote.StoreQuestions.Answer;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;

import org.jspecify.annotations.Nullable;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.function.Consumer;
import java.util.function.Supplier;

/// One user of a store that an owner process has. While the owner is away every call is answered
/// with RPC_FAIL at once; when it comes back, or another life of it, they work again by themselves.
///
/// Threading: any thread.
public final class RemoteStore implements Store {
    /// Keys of one exchange; more are moved in several.
    private static final int KEYS_AT_A_TIME = 1024;

    private final RemoteStoreConfig config;
    private final OwnerLink link;
    private final Optional<Supplier<UserEngine>> shared;
    private volatile @Nullable Moving moving;
    private volatile boolean closed;

    /// What moves bytes; made when it is needed first.
    private record Moving(UserEngine engine, RemoteMoves moves) {
        UserMemory memory() {
            return engine.memory();
        }
    }

    private RemoteStore(
            RemoteStoreConfig config,
            StoreIdentity identity,
            boolean announces,
            Optional<Supplier<UserEngine>> shared) {
        this.config = config;
        this.shared = shared;
        this.link = new OwnerLink(config.address(), config.secret(), identity, announces);
    }

    /// Opens the store whether the owner is there or not.
    ///
    /// @param announces whether this user, of those in the process, logs when the owner goes and
    ///   comes back
    public static RemoteStore open(
            RemoteStoreConfig config, StoreIdentity identity, boolean announces) {
        return open(config, identity, announces, Optional.empty());
    }

    /// The same with an end of transfers that other stores use too. It is asked for when bytes are
    /// moved first, and whoever shares it closes it after the last of them.
    public static RemoteStore open(
            RemoteStoreConfig config,
            StoreIdentity identity,
            boolean announces,
            Supplier<UserEngine> shared) {
        return open(config, identity, announces, Optional.of(shared));
    }

    private static RemoteStore open(
            RemoteStoreConfig config,
            StoreIdentity identity,
            boolean announces,
            Optional<Supplier<UserEngine>> shared) {
        config.checkSecret();
        var store = new RemoteStore(config, identity, announces, shared);
        boolean done = false;
        try {
            store.link.start();
            done = true;
            return store;
        } finally {
            if (!done) {
                store.close();
            }
        }
    }

    private Moving moving() {
        Moving known = moving;
        return known == null ? startMoving() : known;
    }

    /// @throws KvFerryException [ErrorCode#CLOSED] after [#close], which would not see the engine
    private synchronized Moving startMoving() {
        Moving known = moving;
        if (known == null) {
            if (closed) {
                throw new KvFerryException(
                        ErrorCode.CLOSED, "the user of the store has been closed");
            }
            UserEngine engine = shared.map(Supplier::get).orElseGet(() -> UserEngine.start(config));
            known =
                    new Moving(
                            engine,
                            new RemoteMoves(
                                    link, engine.engine(), config.askLimit(), config.moveLimit()));
            moving = known;
        }
        return known;
    }

    OwnerLink link() {
        return link;
    }

    @Override
    public Set<Feature> features() {
        return EnumSet.complementOf(EnumSet.of(Feature.IN_PROCESS));
    }

    @Override
    public int register(MemorySegment memory) {
        if (closed) {
            return StoreCode.UNAVAILABLE_IN_CURRENT_STATUS.number();
        }
        return memory.isNative()
                ? moving().memory().add(memory)
                : StoreCode.INVALID_PARAMS.number();
    }

    @Override
    public int unregister(MemorySegment memory) {
        Moving known = moving; // without an engine nothing is registered
        return known == null ? StoreCode.INVALID_PARAMS.number() : known.memory().remove(memory);
    }

    @Override
    public void put(StoreBatch batch, PutOptions options, int[] results) {
        if (!options.areValid()) { // a soft pin may be longer than a question can say
            Arrays.fill(results, 0, batch.size(), StoreCode.INVALID_PARAMS.number());
            return;
        }
        Optional<Session> open = link.session();
        if (open.isEmpty()) {
            Arrays.fill(results, 0, batch.size(), away());
            return;
        }
        Moving move = moving();
        for (int from = 0; from < batch.size(); ) {
            int to = run(move, batch, from);
            if (to > from) {
                move.moves().put(open.get(), batch, from, to, options, results);
                from = to;
            } else {
                results[from] = putCopy(move, open.get(), batch, from, options);
                from++;
            }
        }
    }

    /// Behind the last key of those that can be moved together.
    private static int run(Moving move, StoreBatch batch, int from) {
        int to = from;
        while (to < batch.size()
                && to - from < KEYS_AT_A_TIME
                && (batch.bytes(to) == 0 || move.memory().covers(batch, to))) {
            to++;
        }
        return to;
    }

    /// Through memory that the engine reaches.
    private static int putCopy(
            Moving move, Session open, StoreBatch batch, int index, PutOptions options) {
        long bytes = batch.bytes(index);
        try (var arena = Arena.ofShared()) {
            MemorySegment copy = arena.allocate(bytes, 64);
            long at = 0;
            for (int b = batch.first(index); b < batch.end(index); b++) {
                long length = batch.length(b);
                MemorySegment.copy(batch.memory(b), batch.offset(b), copy, at, length);
                at += length;
            }
            move.memory().add(copy);
            try {
                var single =
                        new StoreBatch().add(batch.key(index), batch.group(index)).buffer(copy);
                var result = new int[1];
                move.moves().put(open, single, 0, 1, options, result);
                return result[0];
            } finally {
                move.memory().remove(copy);
            }
        }
    }

    @Override
    public void get(StoreBatch batch, long[] results) {
        Optional<Session> open = link.session();
        if (open.isEmpty()) {
            Arrays.fill(results, 0, batch.size(), away());
            return;
        }
        Moving move = moving();
        for (int from = 0; from < batch.size(); ) {
            int to = run(move, batch, from);
            if (to > from) {
                move.moves().get(open.get(), batch, from, to, results);
                from = to;
            } else {
                results[from] = getCopy(move, open.get(), batch, from);
                from++;
            }
        }
    }

    private static long getCopy(Moving move, Session open, StoreBatch batch, int index) {
        try (var arena = Arena.ofShared()) {
            MemorySegment copy = arena.allocate(batch.bytes(index), 64);
            move.memory().add(copy);
            var result = new long[1];
            try {
                var single = new StoreBatch().add(batch.key(index)).buffer(copy);
                move.moves().get(open, single, 0, 1, result);
            } finally {
                move.memory().remove(copy);
            }
            long at = 0;
            for (int b = batch.first(index); b < batch.end(index) && at < result[0]; b++) {
                long length = Math.min(batch.length(b), result[0] - at);
                MemorySegment.copy(copy, at, batch.memory(b), batch.offset(b), length);
                at += length;
            }
            return result[0];
        }
    }

    @Override
    public void exists(List<String> keys, boolean lease, int[] results) {
        for (int from = 0; from < keys.size(); from += StoreProtocol.MOST_KEYS) {
            int to = Math.min(keys.size(), from + StoreProtocol.MOST_KEYS);
            List<String> part = keys.subList(from, to);
            Answer answer =
                    ask(
                            Operation.EXISTS,
                            out -> {
                                out.bool(lease);
                                StoreProtocol.writeKeys(out, part);
                            });
            if (answer.code() == 0) {
                System.arraycopy(answer.body().ints(), 0, results, from, part.size());
            } else {
                Arrays.fill(results, from, to, answer.code());
            }
        }
    }

    @Override
    public void describe(List<String> keys, @Nullable ReplicaDescriptor[] found, int[] results) {
        for (int from = 0; from < keys.size(); from += StoreProtocol.MOST_KEYS) {
            int to = Math.min(keys.size(), from + StoreProtocol.MOST_KEYS);
            describe(keys.subList(from, to), found, results, from);
        }
    }

    /// @param at index of the first key in `found` and `results`
    private void describe(
            List<String> keys, @Nullable ReplicaDescriptor[] found, int[] results, int at) {
        int count = keys.size();
        Arrays.fill(found, at, at + count, null);
        Answer answer = ask(Operation.DESCRIBE, out -> StoreProtocol.writeKeys(out, keys));
        if (answer.code() != 0) {
            Arrays.fill(results, at, at + count, answer.code());
            return;
        }
        WireReader in = answer.body();
        System.arraycopy(in.ints(), 0, results, at, count);
        for (int i = at; i < at + count; i++) {
            if (results[i] == 0) {
                found[i] =
                        new ReplicaDescriptor(
                                StoreProtocol.readTier(in),
                                in.string(),
                                in.i64(),
                                in.i64(),
                                in.i64(),
                                in.i32(),
                                in.i64());
            }
        }
    }

    @Override
    public long size(String key) {
        var found = new @Nullable ReplicaDescriptor[1];
        var results = new int[1];
        describe(List.of(key), found, results);
        ReplicaDescriptor replica = found[0];
        return replica == null ? results[0] : replica.length();
    }

    @Override
    public int remove(String key, boolean force) {
        return (int) number(ask(Operation.REMOVE, out -> out.string(key).bool(force)));
    }

    @Override
    public long removeByRegex(String regex, boolean force) {
        return number(ask(Operation.REMOVE_REGEX, out -> out.string(regex).bool(force)));
    }

    @Override
    public long removeAll(boolean force) {
        return number(ask(Operation.REMOVE_ALL, out -> out.bool(force)));
    }

    private static long number(Answer answer) {
        return answer.code() == 0 ? answer.body().i64() : answer.code();
    }

    private Answer ask(Operation operation, Consumer<WireWriter> body) {
        return link.session()
                .map(open -> link.ask(open, operation, config.askLimit(), body))
                .orElseGet(() -> Answer.failed(StoreCode.of(away())));
    }

    private int away() {
        return closed
                ? StoreCode.UNAVAILABLE_IN_CURRENT_STATUS.number()
                : StoreCode.RPC_FAIL.number();
    }

    /// Objects of a tenant whose keys begin with `beginning`, of any model and layout.
    ///
    /// @param most how many are listed
    /// @throws KvFerryException when the owner does not answer
    public List<StoredKey> list(String tenant, String beginning, int most) {
        return StoredKey.list(link, config, tenant, beginning, most);
    }

    @Override
    public Removals removals() {
        return link.removals();
    }

    @Override
    public Optional<StoreUsage> usage() {
        return link.usage();
    }

    @Override
    public String noRoom() {
        Answer answer = ask(Operation.NO_ROOM, _ -> {});
        return answer.code() == 0 ? answer.body().string() : "";
    }

    @Override
    public int healthCheck() {
        return link.session().isPresent() ? 0 : away();
    }

    @Override
    public void close() {
        closed = true;
        link.close();
        synchronized (this) {
            Moving last = moving;
            if (last != null && shared.isEmpty()) {
                last.engine().close();
            }
        }
    }
}
