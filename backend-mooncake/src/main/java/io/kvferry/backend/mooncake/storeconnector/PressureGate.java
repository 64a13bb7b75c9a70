// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.HashSet;
import java.util.Set;

/// Holds back saves of requests whose last one found the store full, until any save succeeds: those
/// of other requests are the probes. Other failures mean no pressure.
///
/// Threading: any thread.
final class PressureGate {
    private static final Logger LOG = LoggerFactory.getLogger(PressureGate.class);

    /// Requests remembered; more are not held back.
    private static final int MOST = 16_384;

    private final Set<String> skipped = new HashSet<>();
    private boolean pressure;

    /// Whether the save of a request must be skipped.
    synchronized boolean skips(String request) {
        return pressure && skipped.contains(request);
    }

    /// A save has been tried.
    ///
    /// @param full whether a key was refused with NO_AVAILABLE_HANDLE
    /// @param failed whether any key failed
    /// @return whether pressure begins here, which is worth a warning
    synchronized boolean tried(String request, boolean full, boolean failed) {
        boolean before = pressure;
        if (full) {
            pressure = true;
            if (skipped.size() < MOST) {
                skipped.add(request);
            }
        } else if (!failed && pressure) {
            pressure = false;
            skipped.clear();
            LOG.info(
                    "Mooncake CPU/disk offloading pressure cleared after a successful store batch");
        }
        return pressure && !before;
    }
}
