// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.directory;

import io.kvferry.backend.mooncake.store.Store.Removals;
import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.backend.mooncake.store.master.ListedOwner;
import io.kvferry.backend.mooncake.store.master.MasterView;
import io.kvferry.backend.mooncake.store.remote.RemoteStore;
import io.kvferry.backend.mooncake.store.remote.RemoteStoreConfig;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;

/// The owners that one user knows, opened and closed as the master's list changes. An owner that
/// restarts on its port stays the same member, which reconnects by itself.
///
/// Threading: any thread; the list changes on the thread of [MasterView].
final class Members implements MasterView.Listener, AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(Members.class);

    /// Of which the names are kept; with more of them removals fail for good.
    private static final int MOST_ABSENT = 4096;

    private final RemoteStoreConfig master;
    private final StoreIdentity identity;
    private final boolean announces;
    private final FanOut fanOut;
    private final KeyHints hints;
    private final UserEngines engines = new UserEngines();

    /// Addresses of owners that could not be opened, of which that has been said.
    private final Set<String> warned = ConcurrentHashMap.newKeySet();

    /// Segments of owners that were open, are no longer listed under any epoch, and have not been
    /// forgotten by the master.
    private final Set<String> absent = new LinkedHashSet<>();

    private volatile List<Member> members = List.of();
    private boolean complete = true;
    private boolean tooManyAbsent;
    private boolean lost;
    private boolean closed;

    Members(
            RemoteStoreConfig master,
            StoreIdentity identity,
            boolean announces,
            FanOut fanOut,
            KeyHints hints) {
        this.master = master;
        this.identity = identity;
        this.announces = announces;
        this.fanOut = fanOut;
        this.hints = hints;
    }

    UserEngines engines() {
        return engines;
    }

    /// @param members all listed owners, including unreachable ones
    /// @param complete whether no other owner may hold objects of this user. False if a listed
    ///   owner could not be opened, or an owner is no longer listed but may return
    record Known(List<Member> members, boolean complete) {}

    synchronized Known known() {
        return new Known(members, complete && absent.isEmpty() && !tooManyAbsent);
    }

    /// The owners that can be asked now. Owners that have just timed out are skipped, unless there
    /// are no others.
    List<Member> there() {
        List<Member> now = members;
        boolean all = true;
        boolean quick = false;
        for (Member member : now) {
            boolean there = member.isThere();
            all &= there && !member.isSlow();
            quick |= there && !member.isSlow();
        }
        if (all) {
            return now;
        }
        boolean skipSlow = quick;
        return now.stream()
                .filter(Member::isThere)
                .filter(member -> !skipSlow || !member.isSlow())
                .toList();
    }

    /// @return whether all that are listed are open
    @Override
    public boolean changed(List<ListedOwner> owners, boolean whole, Set<String> forgotten) {
        List<Member> old = members;
        var kept = new ArrayList<Member>();
        var added = new ArrayList<ListedOwner>();
        for (ListedOwner owner : owners) {
            var known = old.stream().filter(member -> member.isAt(owner)).findFirst();
            known.ifPresentOrElse(kept::add, () -> added.add(owner));
        }
        var gone = new ArrayList<>(old);
        gone.removeAll(kept);
        if (!whole) { // a new master has not heard of all yet
            gone.removeIf(member ->
                    !forgotten.contains(member.segment())
                            && owners.stream().noneMatch(owner -> replaces(owner, member)));
            old.stream()
                    .filter(member -> !kept.contains(member) && !gone.contains(member))
                    .forEach(kept::add);
        }
        var opened = new CopyOnWriteArrayList<Member>();
        boolean all;
        boolean taken = false;
        try {
            fanOut.run(added.stream().<Runnable>map(owner -> () -> open(owner, opened)).toList());
            kept.addAll(opened);
            all = opened.size() == added.size();
            taken = take(List.copyOf(kept), gone, all, forgotten);
        } finally {
            if (!taken) {
                opened.forEach(Member::close);
            }
        }
        if (taken) {
            gone.forEach(this::retire);
        }
        return all || !taken;
    }

    /// @return whether it is the list now; not when this has been closed
    private synchronized boolean take(
            List<Member> now, List<Member> gone, boolean all, Set<String> forgotten) {
        if (closed) {
            return false;
        }
        var open = new HashSet<String>();
        now.forEach(member -> open.add(member.segment()));
        absent.removeAll(open);
        absent.removeAll(forgotten);
        for (Member member : gone) {
            if (!open.contains(member.segment()) && !forgotten.contains(member.segment())) {
                tooManyAbsent |= absent.size() == MOST_ABSENT;
                if (!tooManyAbsent) {
                    absent.add(member.segment());
                }
            }
        }
        members = now;
        complete = all;
        lost |= !gone.isEmpty();
        return true;
    }

    private static boolean replaces(ListedOwner owner, Member member) {
        return owner.segment().equals(member.segment());
    }

    private void retire(Member member) {
        if (announces) {
            LOG.warn("owner {} is not listed any more: what it holds is not used", member);
        }
        hints.forget(member.segment());
        member.retire();
    }

    private void open(ListedOwner owner, List<Member> opened) {
        try {
            var config = master.at(owner.address());
            var store = RemoteStore.open(config, identity, announces, () -> engines.of(config));
            opened.add(new Member(owner, store));
            warned.remove(owner.address());
        } catch (RuntimeException | OutOfMemoryError e) { // it needs a secret; no thread
            if (warned.add(owner.address())) {
                LOG.warn(
                        "owner {} is not used: {}. It is tried again and again",
                        owner.segment(),
                        e.toString());
            }
        }
    }

    /// What went, at any owner or with one.
    Removals removals() {
        var keys = new ArrayList<String>();
        boolean all;
        synchronized (this) {
            all = lost;
            lost = false;
        }
        for (Member member : members) {
            Removals removals = member.quick().removals();
            all |= removals.all();
            keys.addAll(removals.keys());
        }
        if (!all && keys.isEmpty()) {
            return Removals.NONE;
        }
        return new Removals(all, all ? List.of() : keys);
    }

    @Override
    public void close() {
        List<Member> last;
        synchronized (this) {
            closed = true;
            last = members;
            members = List.of();
        }
        fanOut.run(last.stream().<Runnable>map(member -> member::close).toList());
        engines.close();
    }
}
