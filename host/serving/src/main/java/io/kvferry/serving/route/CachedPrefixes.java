// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

import io.kvferry.serving.events.KvEvent;
import io.kvferry.serving.events.KvEventSubscriber;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.concurrent.atomic.LongAdder;
import java.util.concurrent.locks.ReentrantLock;

/// Which prefixes an instance has in its prefix cache, by its KV events. Engines hash blocks each
/// in their own way, so a prefix is found by a hash of its tokens that is made here; the hashes of
/// the engine only link a block to its parent. Wrong entries cost a cache hit, nothing else.
///
/// Threading: any thread.
final class CachedPrefixes implements KvEventSubscriber.Listener {
    /// Blocks that are remembered of one instance, about 100 bytes each; more are ignored.
    static final int MAX_BLOCKS = 1 << 18;

    private static final Logger LOG = LoggerFactory.getLogger(CachedPrefixes.class);

    final LongAdder losses = new LongAdder();
    final LongAdder ignored = new LongAdder();
    private final String instance;
    private final int most;
    private final ReentrantLock lock = new ReentrantLock();

    /// The engine's hash of a block to the hash of the prefix that ends with it.
    private final Map<Long, Long> prefixes = new HashMap<>();

    /// The hash of a prefix to the number of blocks that it ends with: one for each of the engine's
    /// hashes.
    private final Map<Long, Integer> copies = new HashMap<>();

    private int blockTokens;

    /// @param instance for the log
    CachedPrefixes(String instance) {
        this(instance, MAX_BLOCKS);
    }

    CachedPrefixes(String instance, int most) {
        this.instance = instance;
        this.most = most;
    }

    @Override
    public void heard(List<KvEvent> events) {
        events.forEach(this::hear); // one by one, so that a long batch does not delay requests
    }

    private void hear(KvEvent event) {
        lock.lock();
        try {
            switch (event) {
                case KvEvent.Stored stored -> store(stored);
                case KvEvent.Removed(long[] blocks) -> {
                    for (long block : blocks) {
                        remove(block);
                    }
                }
                case KvEvent.Cleared _ -> clear();
            }
        } finally {
            lock.unlock();
        }
    }

    @Override
    public void lost(String why) {
        lock.lock();
        try {
            if (!prefixes.isEmpty()) {
                LOG.info("what {} has cached is not known: {}", instance, why);
                losses.increment();
            }
            clear();
        } finally {
            lock.unlock();
        }
    }

    private void clear() {
        prefixes.clear();
        copies.clear();
        blockTokens = 0;
    }

    private void store(KvEvent.Stored stored) {
        if (prefixes.isEmpty()) {
            blockTokens = stored.blockTokens();
        }
        var before = prefixBefore(stored);
        if (stored.blockTokens() != blockTokens || before.isEmpty()) {
            ignored.add(stored.blocks().length); // a partial block, or one after an unknown one
            return;
        }
        long prefix = before.getAsLong();
        for (int i = 0; i < stored.blocks().length; i++) {
            if (prefixes.size() >= most) {
                ignored.add(stored.blocks().length - i);
                return;
            }
            prefix = next(prefix, stored.tokens(), i * blockTokens);
            remove(stored.blocks()[i]);
            prefixes.put(stored.blocks()[i], prefix);
            copies.merge(prefix, 1, Integer::sum);
        }
    }

    private OptionalLong prefixBefore(KvEvent.Stored stored) {
        if (stored.parent().isEmpty()) {
            return OptionalLong.of(root(stored.salt()));
        }
        var known = prefixes.get(stored.parent().getAsLong());
        return known == null ? OptionalLong.empty() : OptionalLong.of(known);
    }

    private void remove(long block) {
        var prefix = prefixes.remove(block);
        if (prefix != null) {
            copies.computeIfPresent(prefix, (_, count) -> count == 1 ? null : count - 1);
        }
    }

    /// Tokens at the beginning of a prompt that are cached for this salt.
    int longest(int[] tokens, String salt) {
        lock.lock();
        try {
            if (blockTokens == 0) {
                return 0;
            }
            int found = 0;
            long prefix = root(salt);
            while (found + blockTokens <= tokens.length) {
                prefix = next(prefix, tokens, found);
                if (!copies.containsKey(prefix)) {
                    break;
                }
                found += blockTokens;
            }
            return found;
        } finally {
            lock.unlock();
        }
    }

    /// Blocks that are known to be cached.
    int size() {
        lock.lock();
        try {
            return prefixes.size();
        } finally {
            lock.unlock();
        }
    }

    /// The hash before the first block of a prompt; it covers the salt, so that blocks of different
    /// salts differ.
    private static long root(String salt) {
        long hash = 0;
        for (int i = 0; i < salt.length(); i++) {
            hash = mix(hash + salt.charAt(i) + 1);
        }
        return hash;
    }

    /// The hash of a prefix and the block of tokens after it.
    private long next(long prefix, int[] tokens, int from) {
        long hash = prefix;
        for (int i = from; i < from + blockTokens; i++) {
            hash = mix(hash + tokens[i] + 1);
        }
        return hash;
    }

    /// SplitMix64.
    private static long mix(long value) {
        long z = value + 0x9E3779B97F4A7C15L;
        z = (z ^ (z >>> 30)) * 0xBF58476D1CE4E5B9L;
        z = (z ^ (z >>> 27)) * 0x94D049BB133111EBL;
        return z ^ (z >>> 31);
    }
}
