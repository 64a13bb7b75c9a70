// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.disk.space;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/// What a process knows of the files in a shared folder, in the order in which they would be
/// evicted, and how much of the folder's quota is left.
///
/// Other processes add and delete files too, so the catalog may be wrong: scans, and every read or
/// lookup, correct it. No call here touches a file.
///
/// Threading: any thread; the monitor is held for memory work only (a monitor, unlike a contended
/// lock object, makes no garbage).
public final class SpaceCatalog {
    /// What a lookup may assume about a file.
    public enum Presence {
        ABSENT,
        /// Seen on disk a short while ago.
        FRESH,
        /// Seen, but long enough ago that another process may have deleted it.
        STALE,
        /// A read failed: a miss for a while, or until the file is written again.
        SUPPRESSED
    }

    /// How long lookups of a file miss after many failed reads in a row.
    public static final long LONGEST_SUPPRESSION_NANOS = TimeUnit.HOURS.toNanos(1);

    private final RecencyIndex index = new RecencyIndex();
    private final Recency recency;
    private final long quota;
    private final long high;
    private final long low;
    private final long verifyAfterNanos;
    private final long suppressionNanos;
    private long reserved;
    private final RecentEvictions evictions = new RecentEvictions();

    /// @param quota most bytes that files may take
    /// @param low bytes at which eviction in the background stops
    /// @param high bytes above which it starts
    /// @param verifyAfterNanos age at which what was seen of a file is no longer fresh
    /// @param suppressionNanos how long lookups of a file miss after a read of it failed for the
    ///   first time
    public SpaceCatalog(
            long quota,
            long low,
            long high,
            long verifyAfterNanos,
            long suppressionNanos,
            Recency recency) {
        this.quota = quota;
        this.low = low;
        this.high = high;
        this.verifyAfterNanos = verifyAfterNanos;
        this.suppressionNanos = suppressionNanos;
        this.recency = recency;
    }

    /// Whether the file was there when this process last saw it.
    public boolean mayContain(KeyDigest digest, long now) {
        return switch (presence(digest, now)) {
            case FRESH, STALE -> true;
            case ABSENT, SUPPRESSED -> false;
        };
    }

    public synchronized Presence presence(KeyDigest digest, long now) {
        int slot = index.find(digest);
        if (slot == RecencyIndex.NONE) {
            return Presence.ABSENT;
        }
        if (index.unreadable(slot) || index.suppressed(slot, now)) {
            return Presence.SUPPRESSED;
        }
        if (index.neverSeen(slot)) {
            return Presence.ABSENT;
        }
        return now - index.verifiedAt(slot) < verifyAfterNanos ? Presence.FRESH : Presence.STALE;
    }

    /// Asked before a look at the disk, for [#sighted]: the evictions that are over.
    public synchronized long lookBegins() {
        return evictions.over();
    }

    /// The file was seen on disk at `now`. One that is not in the catalog enters it, unless this
    /// process has evicted it since the look began.
    ///
    /// @param persistent the time of use that the file carries, which another process may have
    ///   written
    /// @return whether the file is there, as far as this process knows
    public synchronized boolean sighted(
            KeyDigest digest, long bytes, long now, long persistent, long lookBegan) {
        int slot = index.find(digest);
        if (slot != RecencyIndex.NONE) {
            index.resize(slot, bytes);
            index.verifiedAt(slot, now);
            if (persistent > index.persisted(slot)) {
                learn(slot, persistent, recency.nowMillis());
            }
            return true;
        }
        if (evictions.since(digest, lookBegan)) {
            return false;
        }
        add(digest, bytes, now, persistent, recency.nowMillis());
        return true;
    }

    /// The whole file was read at `now`; answers whether it is known.
    public synchronized boolean read(KeyDigest digest, long bytes, long now) {
        int slot = index.find(digest);
        if (slot == RecencyIndex.NONE) {
            return false;
        }
        index.resize(slot, bytes);
        index.verifiedAt(slot, now);
        index.readable(slot);
        return true;
    }

    /// A later use than known, by another process, moves the file to its place.
    private void learn(int slot, long persistent, long nowMillis) {
        if (persistent > index.persisted(slot)) {
            index.persisted(slot, persistent);
            long learned = Recency.learned(persistent, nowMillis);
            index.touch(slot, Math.max(learned, index.stamp(slot)));
        }
    }

    private int add(KeyDigest digest, long bytes, long now, long persistent, long nowMillis) {
        int slot = index.add(digest, bytes, Recency.learned(persistent, nowMillis));
        index.persisted(slot, persistent);
        index.verifiedAt(slot, now);
        return slot;
    }

    /// The file was just written or found there, by this process or another, and may be read. How
    /// often reads of it failed here stays known, as it may be the same file.
    ///
    /// @param bytes its size; 0 when not known yet
    public synchronized void confirm(KeyDigest digest, long bytes, long now, long stamp) {
        int slot = index.find(digest);
        if (slot == RecencyIndex.NONE) {
            slot = index.add(digest, bytes, stamp);
        } else {
            index.resize(slot, bytes == 0 ? index.bytes(slot) : bytes);
            index.touch(slot, Math.max(stamp, index.stamp(slot)));
        }
        index.verifiedAt(slot, now);
        index.allow(slot);
    }

    /// Whether the file is known, fresh or not.
    public synchronized boolean contains(KeyDigest digest) {
        return index.find(digest) != RecencyIndex.NONE;
    }

    /// Notes a use of a file, if the file is known.
    ///
    /// @return the time to write to the file, or 0 when it has it already or is not known
    public synchronized long touch(KeyDigest digest, long stamp) {
        int slot = index.find(digest);
        if (slot == RecencyIndex.NONE) {
            return 0;
        }
        index.touch(slot, Math.max(stamp, index.stamp(slot)));
        long persistent = recency.persistent(index.stamp(slot));
        return persistent > index.persisted(slot) ? persistent : 0;
    }

    /// The file carries this time now.
    public synchronized void persisted(KeyDigest digest, long persistent) {
        int slot = index.find(digest);
        if (slot != RecencyIndex.NONE) {
            index.persisted(slot, persistent);
        }
    }

    /// The file is not on disk (any more); answers whether it was known.
    public synchronized boolean invalidate(KeyDigest digest) {
        int slot = index.find(digest);
        if (slot == RecencyIndex.NONE) {
            return false;
        }
        index.remove(slot);
        return true;
    }

    /// A look at the disk that began at `began` did not find the file; answers whether it was
    /// known. One that was seen or written since stays.
    public synchronized boolean missing(KeyDigest digest, long began) {
        int slot = index.find(digest);
        if (slot == RecencyIndex.NONE || index.verifiedAt(slot) - began > 0) {
            return false;
        }
        index.remove(slot);
        return true;
    }

    /// A read that began at `began` did not find the file, here or elsewhere. One that was seen or
    /// written since stays, and so does one whose lookups are to miss: the same load may have
    /// failed for it in another way.
    public synchronized void missedElsewhere(KeyDigest digest, long began, long now) {
        int slot = index.find(digest);
        if (slot != RecencyIndex.NONE
                && index.verifiedAt(slot) - began <= 0
                && !index.suppressed(slot, now)
                && !index.unreadable(slot)) {
            index.remove(slot);
        }
    }

    /// A read of the file failed. One that another process has saved may not be known; it enters
    /// the catalog, so that [#suppress] and [#markUnreadable] have an effect.
    public synchronized void readFailed(KeyDigest digest, long now) {
        if (index.find(digest) == RecencyIndex.NONE) {
            index.verifiedAt(index.add(digest, 0, recency.stampNow(Integer.MAX_VALUE)), now);
        }
    }

    /// Makes lookups of a known file miss for a while, because a read of it failed, and for twice
    /// as long each time that it fails again, up to [#LONGEST_SUPPRESSION_NANOS]. Several reports
    /// of one failure count once.
    ///
    /// @param began when the read began or before; what was suppressed since was so for the same
    ///   failure
    public synchronized void suppress(KeyDigest digest, long began, long now) {
        int slot = index.find(digest);
        if (slot == RecencyIndex.NONE || index.suppressed(slot, now)) {
            return;
        }
        int failures = index.suppressions(slot);
        if (failures == 0 || index.suppressedUntil(slot) - nanos(failures - 1) - began <= 0) {
            index.suppress(slot, now + nanos(failures));
        }
    }

    /// How long lookups of a file miss that has failed so often before.
    private long nanos(int failures) {
        long nanos = suppressionNanos;
        for (int i = failures; i > 0 && nanos < LONGEST_SUPPRESSION_NANOS; i--) {
            nanos *= 2;
        }
        return Math.min(nanos, LONGEST_SUPPRESSION_NANOS);
    }

    /// Makes lookups of a known file miss until this process writes it again or hears of that: its
    /// content is wrong and it cannot be deleted.
    public synchronized void markUnreadable(KeyDigest digest) {
        int slot = index.find(digest);
        if (slot != RecencyIndex.NONE) {
            index.markUnreadable(slot);
        }
    }

    /// Another process has read the file well: earlier failures no longer count.
    public synchronized void readElsewhere(KeyDigest digest) {
        int slot = index.find(digest);
        if (slot != RecencyIndex.NONE) {
            index.readable(slot);
        }
    }

    /// Whether a save should replace the file although it is there.
    public synchronized boolean unreadable(KeyDigest digest) {
        int slot = index.find(digest);
        return slot != RecencyIndex.NONE && index.unreadable(slot);
    }

    /// Reserves quota for a file about to be written; false when it does not fit.
    public synchronized boolean reserve(long bytes) {
        if (index.totalBytes() + reserved + bytes > quota) {
            return false;
        }
        reserved += bytes;
        return true;
    }

    /// Gives a reservation back.
    public synchronized void release(long bytes) {
        reserved -= bytes;
    }

    /// Turns a reservation into a file. If recording the file fails for lack of memory, the
    /// reservation stays until [#release].
    public synchronized void commit(KeyDigest digest, long bytes, long now, long stamp) {
        confirm(digest, bytes, now, stamp);
        reserved -= bytes;
        int slot = index.find(digest);
        index.readable(slot);
        index.persisted(slot, recency.persistent(stamp));
    }

    /// Whether the background should start to evict.
    public synchronized boolean aboveHighWatermark() {
        return index.totalBytes() + reserved > high;
    }

    public synchronized boolean aboveLowWatermark() {
        return index.totalBytes() + reserved > low;
    }

    /// Puts the file used longest ago into `victim`; false when there is none.
    public synchronized boolean oldest(Victim victim) {
        victim.reserved = false;
        int slot = index.oldest();
        if (slot == RecencyIndex.NONE) {
            return false;
        }
        index.digest(slot, victim.words);
        victim.stamp = index.stamp(slot);
        victim.persisted = index.persisted(slot);
        victim.bytes = index.bytes(slot);
        return true;
    }

    /// A victim turned out to be used later than known: puts it to its place.
    ///
    /// @param persistent what the file itself says
    public synchronized void correct(Victim victim, long persistent, long nowMillis) {
        int slot = index.find(victim.words);
        if (slot != RecencyIndex.NONE) {
            learn(slot, persistent, nowMillis);
        }
    }

    /// Forgets a file about to be deleted; false when it is gone or was used meanwhile. [#evicted]
    /// ends it.
    ///
    /// @param room to reserve at the same time where there is enough then, so that nobody else
    ///   takes what this eviction makes; 0 for none
    public synchronized boolean evict(Victim victim, long room) {
        int slot = index.find(victim.words);
        if (slot == RecencyIndex.NONE || index.stamp(slot) != victim.stamp) {
            return false;
        }
        index.failures(slot, victim);
        index.remove(slot);
        evictions.begin(victim.words);
        victim.reserved = room > 0 && reserve(room);
        return true;
    }

    /// The file of a victim is gone.
    public synchronized void evicted() {
        evictions.end();
    }

    /// The file of a victim could not be deleted: its bytes are still taken, and nothing is
    /// reserved. Failed reads of it count as before, and so do those since the eviction began.
    ///
    /// @param room as for [#evict]
    public synchronized void kept(Victim victim, long room, long now, long stamp) {
        if (victim.reserved) {
            release(room);
            victim.reserved = false;
        }
        int slot = index.find(victim.words);
        if (slot == RecencyIndex.NONE) {
            slot = index.add(victim.words, victim.bytes, stamp);
        } else {
            index.resize(slot, victim.bytes == 0 ? index.bytes(slot) : victim.bytes);
            index.touch(slot, Math.max(stamp, index.stamp(slot)));
        }
        index.verifiedAt(slot, now);
        index.addFailures(slot, victim);
    }

    /// A scan found these files in a changed folder. Processed in batches, so that several cache
    /// misses overlap.
    ///
    /// @param digests four words each; those that are not known are moved to the front
    /// @return how many are not known
    public synchronized int scanned(long[] digests, int count, int scan) {
        int unknown = 0;
        for (int i = 0; i < count; i++) {
            int at = i * KeyDigest.WORDS;
            int slot = index.find(digests[at], digests[at + 1], digests[at + 2], digests[at + 3]);
            if (slot == RecencyIndex.NONE || index.bytes(slot) == 0) {
                System.arraycopy(digests, at, digests, unknown * KeyDigest.WORDS, KeyDigest.WORDS);
                unknown++;
            } else {
                index.scan(slot, scan);
            }
        }
        return unknown;
    }

    /// A scan met a file that was not known, and looked at it.
    ///
    /// @param persistent what the file says of its last use
    public synchronized void discovered(
            KeyDigest digest, long bytes, long now, long persistent, long nowMillis, int scan) {
        int slot = index.find(digest);
        if (slot == RecencyIndex.NONE) {
            slot = add(digest, bytes, now, persistent, nowMillis);
        } else {
            index.resize(slot, bytes);
            learn(slot, persistent, nowMillis);
        }
        index.scan(slot, scan);
    }

    /// Which files a scan has looked for.
    @FunctionalInterface
    public interface Scanned {
        boolean test(long firstWordOfDigest);
    }

    /// Forgets the files that scan number `scan`, begun at `startedAt`, looked for and did not
    /// meet, and that nobody saw since; answers those. Where there is no memory for the answer,
    /// nothing is forgotten.
    public synchronized List<KeyDigest> sweep(int scan, long startedAt, Scanned looked) {
        var gone = new ArrayList<KeyDigest>();
        for (int slot = 0; slot < index.slots(); slot++) {
            if (index.scan(slot) != scan
                    && index.holds(slot)
                    && index.verifiedAt(slot) - startedAt < 0
                    && looked.test(index.firstWord(slot))) {
                gone.add(index.digest(slot));
            }
        }
        forget(gone);
        return gone;
    }

    /// Forgets everything; answers what that was. Where there is no memory for the answer, nothing
    /// is forgotten.
    public synchronized List<KeyDigest> clear() {
        var gone = new ArrayList<KeyDigest>(index.size());
        for (int slot = 0; slot < index.slots(); slot++) {
            if (index.holds(slot)) {
                gone.add(index.digest(slot));
            }
        }
        forget(gone);
        return gone;
    }

    private void forget(List<KeyDigest> gone) {
        for (int i = 0; i < gone.size(); i++) {
            index.remove(index.find(gone.get(i)));
        }
    }

    public synchronized long usedBytes() {
        return index.totalBytes();
    }

    public synchronized int files() {
        return index.size();
    }
}
