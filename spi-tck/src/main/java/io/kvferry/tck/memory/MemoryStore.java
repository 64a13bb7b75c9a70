// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.memory;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.BlockHash;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Supplier;
import java.util.zip.CRC32C;

/// The storage of the in-memory connectors: blocks by namespace and hash, and hand-offs by name.
/// Opened by name. It lives as long as a handle is open, so a test that needs the contents to
/// outlive the engines keeps a handle.
///
/// It simulates a medium outside of the process: copies of the connector in several class loaders
/// share one instance, which is why all of it is public.
///
/// Tests also use it to break things: [#corrupt], [#setDown], [#clear].
///
/// Threading: any thread.
public final class MemoryStore implements AutoCloseable {
    private static final Duration STALL_LIMIT = Duration.ofSeconds(10);
    private static final Map<String, Contents> BY_NAME = new HashMap<>();

    /// What all handles of one name share.
    private static final class Contents {
        final ReentrantLock lock = new ReentrantLock();
        final Map<String, LinkedHashMap<BlockHash, Block>> namespaces = new HashMap<>();
        final Map<String, Long> clearings = new HashMap<>();
        final Map<String, Offer> offers = new HashMap<>();
        final Map<String, Map<String, Part>> items = new HashMap<>();
        final Set<String> taken = new HashSet<>();
        volatile boolean down;
        volatile boolean stalled;
        int handles;
    }

    /// The bytes of one block of all layers of one group on one rank, with a checksum per layer.
    @SuppressWarnings("ArrayRecordComponent") // shared, never compared
    public record Part(MemorySegment data, int[] checksums) {
        public static int checksum(MemorySegment data, long offset, long length) {
            var crc = new CRC32C();
            crc.update(data.asSlice(offset, length).asByteBuffer());
            return (int) crc.getValue();
        }

        public boolean isSound(int layer, long layerBytes) {
            return checksum(data, layer * layerBytes, layerBytes) == checksums[layer];
        }
    }

    /// The parts of one block; loadable when none is missing.
    private static final class Block {
        final Part[] parts;
        int missing;

        Block(int parts) {
            this.parts = new Part[parts];
            this.missing = parts;
        }
    }

    /// A hand-off of all ranks: announced by the scheduler half, filled by the worker halves.
    private static final class Offer {
        final HandOff[] ranks;
        long wantedAt;

        Offer(int ranks) {
            this.ranks = new HandOff[ranks];
        }
    }

    /// What became of a hand-off.
    public enum OfferState {
        ABSENT,
        ANNOUNCED,
        READY
    }

    private final String name;
    private final Contents contents;
    private boolean closed;

    private MemoryStore(String name, Contents contents) {
        this.name = name;
        this.contents = contents;
    }

    /// A handle on the store of that name.
    public static MemoryStore open(String name) {
        synchronized (BY_NAME) {
            var contents = BY_NAME.computeIfAbsent(name, _ -> new Contents());
            contents.handles++;
            return new MemoryStore(name, contents);
        }
    }

    /// Idempotent; the last handle takes the contents with it.
    @Override
    public void close() {
        synchronized (BY_NAME) {
            if (!closed && --contents.handles == 0) {
                BY_NAME.remove(name, contents);
            }
            closed = true;
        }
    }

    /// Names of the stores that somebody has open: for leak checks.
    public static List<String> openStores() {
        synchronized (BY_NAME) {
            return List.copyOf(BY_NAME.keySet());
        }
    }

    /// Loadable blocks over all namespaces.
    public int blocks() {
        return locked(() ->
                contents.namespaces.values().stream()
                        .mapToInt(blocks ->
                                (int)
                                        blocks.values().stream()
                                                .filter(block -> block.missing == 0)
                                                .count())
                        .sum());
    }

    /// Items over all namespaces.
    public int items() {
        return locked(() -> contents.items.values().stream().mapToInt(Map::size).sum());
    }

    /// Whether all of the block can be loaded now.
    public boolean contains(String namespace, BlockHash hash) {
        if (contents.down) {
            return false;
        }
        return locked(() -> {
            var block =
                    contents.namespaces.getOrDefault(namespace, new LinkedHashMap<>()).get(hash);
            return block != null && block.missing == 0;
        });
    }

    /// Damages every stored byte range; checksums stay as they were.
    public void corrupt() {
        locked(() -> {
            contents.namespaces
                    .values()
                    .forEach(blocks ->
                            blocks.values()
                                    .forEach(block -> {
                                        for (var part : block.parts) {
                                            if (part != null) {
                                                flip(part.data);
                                            }
                                        }
                                    }));
            contents.items
                    .values()
                    .forEach(items -> items.values().forEach(part -> flip(part.data)));
            return true;
        });
    }

    private static void flip(MemorySegment data) {
        long middle = data.byteSize() / 2;
        data.set(ValueLayout.JAVA_BYTE, middle, (byte) ~data.get(ValueLayout.JAVA_BYTE, middle));
    }

    /// While down, nothing is found, and reads and writes fail with STORAGE_IO.
    public void setDown(boolean down) {
        contents.down = down;
    }

    /// While stalled, reads of blocks and hand-offs wait, for at most ten seconds.
    public void setStalled(boolean stalled) {
        contents.stalled = stalled;
    }

    private void awaitFlow() {
        var limit = Deadline.in(STALL_LIMIT);
        while (contents.stalled && !limit.passed()) {
            LockSupport.parkNanos(100_000);
        }
    }

    /// Forgets every block and item; hand-offs stay.
    public void clear() {
        locked(() -> {
            contents.namespaces.clear();
            contents.items.clear();
            contents.taken.clear();
            return true;
        });
    }

    public void clear(String namespace) {
        locked(() -> {
            contents.clearings.merge(namespace, 1L, Long::sum);
            return contents.namespaces.remove(namespace) != null;
        });
    }

    /// How often the namespace has been cleared.
    public long clearings(String namespace) {
        return locked(() -> contents.clearings.getOrDefault(namespace, 0L));
    }

    /// Stores one part and keeps at most `capacity` blocks of the namespace, dropping the least
    /// recently used.
    ///
    /// @param evicted gets what had to go
    /// @return whether the block became loadable by this part
    public boolean put(
            String namespace,
            BlockHash hash,
            int part,
            int parts,
            Part data,
            int capacity,
            List<BlockHash> evicted) {
        checkUp();
        return locked(() -> {
            var blocks =
                    contents.namespaces.computeIfAbsent(
                            namespace, _ -> new LinkedHashMap<>(16, 0.75f, true));
            var block = blocks.computeIfAbsent(hash, _ -> new Block(parts));
            boolean isNew = block.parts[part] == null;
            block.parts[part] = data;
            block.missing -= isNew ? 1 : 0;
            var all = new ArrayList<>(blocks.keySet());
            for (int i = 0; i < all.size() - capacity; i++) {
                var oldest = blocks.remove(all.get(i));
                if (oldest != null && oldest.missing == 0) {
                    evicted.add(all.get(i));
                }
            }
            return isNew && block.missing == 0;
        });
    }

    public Optional<Part> get(String namespace, BlockHash hash, int part) {
        awaitFlow();
        checkUp();
        return locked(() -> {
            var block =
                    contents.namespaces.getOrDefault(namespace, new LinkedHashMap<>()).get(hash);
            return block == null ? Optional.empty() : Optional.ofNullable(block.parts[part]);
        });
    }

    /// Drops a block that proved to be damaged; whether it was there.
    public boolean remove(String namespace, BlockHash hash) {
        return locked(() -> {
            var blocks = contents.namespaces.get(namespace);
            return blocks != null && blocks.remove(hash) != null;
        });
    }

    /// @return whether it was not there before
    public boolean putItem(String namespace, String key, Part data) {
        checkUp();
        return locked(() -> {
            var items = contents.items.computeIfAbsent(namespace, _ -> new HashMap<>());
            boolean isNew = items.put(key, data) == null;
            if (isNew) {
                contents.taken.remove(namespace + "/" + key);
            }
            return isNew;
        });
    }

    /// A consumer has loaded the item.
    public void itemTaken(String namespace, String key) {
        locked(() -> contents.taken.add(namespace + "/" + key));
    }

    /// Whether anybody has loaded the item since it was stored.
    public boolean wasTaken(String namespace, String key) {
        return locked(() -> contents.taken.contains(namespace + "/" + key));
    }

    public Optional<Part> item(String namespace, String key) {
        checkUp();
        return locked(() ->
                Optional.ofNullable(contents.items.getOrDefault(namespace, Map.of()).get(key)));
    }

    public boolean hasItem(String namespace, String key) {
        return !contents.down && item(namespace, key).isPresent();
    }

    public boolean removeItem(String namespace, String key) {
        return locked(
                () -> contents.items.getOrDefault(namespace, new HashMap<>()).remove(key) != null);
    }

    public void clearItems(String namespace) {
        locked(() -> contents.items.remove(namespace) != null);
    }

    public void announce(String key, int ranks) {
        locked(() -> contents.offers.put(key, new Offer(ranks)) == null);
    }

    /// Fills one rank of an announced hand-off; false when it has been withdrawn already.
    public boolean offer(String key, int rank, HandOff handOff) {
        return locked(() -> {
            var offer = contents.offers.get(key);
            if (offer != null) {
                offer.ranks[rank] = handOff;
            }
            return offer != null;
        });
    }

    public OfferState offerState(String key) {
        if (contents.down) {
            return OfferState.ABSENT;
        }
        return locked(() -> {
            var offer = contents.offers.get(key);
            if (offer == null) {
                return OfferState.ABSENT;
            }
            offer.wantedAt = System.nanoTime();
            for (var rank : offer.ranks) {
                if (rank == null) {
                    return OfferState.ANNOUNCED;
                }
            }
            return OfferState.READY;
        });
    }

    /// Nanoseconds since a consumer last asked for it; empty when nobody did or it is gone.
    public Optional<Long> sinceWanted(String key) {
        return locked(() -> {
            var offer = contents.offers.get(key);
            return offer == null || offer.wantedAt == 0
                    ? Optional.empty()
                    : Optional.of(System.nanoTime() - offer.wantedAt);
        });
    }

    public Optional<HandOff> handOff(String key, int rank) {
        awaitFlow();
        checkUp();
        return locked(() -> {
            var offer = contents.offers.get(key);
            return offer == null || rank >= offer.ranks.length
                    ? Optional.empty()
                    : Optional.ofNullable(offer.ranks[rank]);
        });
    }

    /// The consumer will not come: all ranks may let go.
    public void abandon(String key) {
        locked(() -> {
            var offer = contents.offers.get(key);
            if (offer != null) {
                for (var rank : offer.ranks) {
                    if (rank != null) {
                        rank.taken();
                    }
                }
            }
            return offer != null;
        });
    }

    public void withdraw(String key) {
        var offer = locked(() -> Optional.ofNullable(contents.offers.remove(key)));
        offer.ifPresent(gone -> {
            for (var rank : gone.ranks) {
                if (rank != null) {
                    rank.withdraw();
                }
            }
        });
    }

    private void checkUp() {
        if (contents.down) {
            throw new KvFerryException(ErrorCode.STORAGE_IO, "memory store " + name + " is down");
        }
    }

    private <T> T locked(Supplier<T> action) {
        contents.lock.lock();
        try {
            return action.get();
        } finally {
            contents.lock.unlock();
        }
    }
}
