// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.samehost;

import io.kvferry.spi.Deadline;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.nio.channels.FileLock;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/// The copies that users have announced in an owner's control page, which the owner waits for.
///
/// Threading: any thread.
final class AnnouncedCopies {
    private static final Logger LOG = LoggerFactory.getLogger(AnnouncedCopies.class);
    private static final long LOOK_AGAIN_NANOS = TimeUnit.MICROSECONDS.toNanos(20);

    /// After this wait a user is checked for being alive.
    private static final Duration SUSPICION = Duration.ofMillis(2);

    private final SharedFolder folder;
    private final ControlPage control;
    private final SharedLocks userLocks;

    AnnouncedCopies(SharedFolder folder, ControlPage control, SharedLocks userLocks) {
        this.folder = folder;
        this.control = control;
        this.userLocks = userLocks;
    }

    /// Waits until every copy that was announced when this was called has ended.
    boolean awaitEnd(Deadline deadline) {
        return awaitEnd(ControlPage.ANY_GRANT, deadline);
    }

    /// @param grant leaves out copies that are made under another one
    boolean awaitEnd(int grant, Deadline deadline) {
        for (int user = 0; user < ControlPage.USERS; user++) {
            for (int mark = 0; mark < ControlPage.MARKS; mark++) {
                long seen = control.word(user, mark);
                if (seen != 0 && !awaitMark(user, mark, seen, grant, deadline)) {
                    return false;
                }
            }
        }
        return true;
    }

    private boolean awaitMark(int user, int mark, long seen, int grant, Deadline deadline) {
        Deadline suspicious = Deadline.in(SUSPICION);
        while (control.word(user, mark) == seen && !isUnderAnother(user, mark, grant)) {
            if (suspicious.passed()) {
                if (clearedIfDead(user, mark)) {
                    return true;
                }
                suspicious = Deadline.in(SUSPICION.multipliedBy(10));
            }
            if (deadline.passed()) {
                return false;
            }
            LockSupport.parkNanos(LOOK_AGAIN_NANOS);
        }
        return true;
    }

    private boolean isUnderAnother(int user, int mark, int grant) {
        int of = control.markGrant(user, mark);
        return grant != ControlPage.ANY_GRANT && of != ControlPage.ANY_GRANT && of != grant;
    }

    /// Takes back what a user that has ended has announced. Under its lock, so that it is not the
    /// next user's announcement.
    private boolean clearedIfDead(int user, int mark) {
        try {
            Optional<FileLock> free = userLocks.take(user);
            if (free.isPresent()) {
                control.setWord(user, mark, 0);
                free.get().release();
            }
            return free.isPresent();
        } catch (IOException e) {
            LOG.warn(
                    "cannot tell whether user {} of {} lives: {}",
                    user,
                    folder.users(),
                    e.toString());
            return false;
        }
    }
}
