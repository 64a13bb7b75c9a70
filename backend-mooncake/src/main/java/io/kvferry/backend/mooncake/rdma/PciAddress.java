// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.rdma;

import java.util.Locale;
import java.util.Optional;
import java.util.regex.Pattern;

/// Where a device is on the PCI bus.
record PciAddress(int domain, int bus, int device, int function) {
    private static final Pattern FORM =
            Pattern.compile(
                    "([0-9a-f]{1,8}):([0-9a-f]{1,2}):([0-9a-f]{1,2})\\.([0-9a-f])",
                    Pattern.CASE_INSENSITIVE);

    /// Distance to an address that cannot be read.
    static final int FAR = 1 << 30;

    /// Of `0000:17:00.0` or NVIDIA's `00000000:17:00.0`.
    static Optional<PciAddress> of(String text) {
        var matcher = FORM.matcher(text.strip());
        return matcher.matches()
                ? Optional.of(
                        new PciAddress(
                                Integer.parseUnsignedInt(matcher.group(1), 16),
                                Integer.parseInt(matcher.group(2), 16),
                                Integer.parseInt(matcher.group(3), 16),
                                Integer.parseInt(matcher.group(4), 16)))
                : Optional.empty();
    }

    static long distance(Optional<PciAddress> one, Optional<PciAddress> other) {
        if (one.isEmpty() || other.isEmpty()) {
            return FAR;
        }
        PciAddress a = one.get();
        PciAddress b = other.get();
        return Math.abs((long) a.domain - b.domain) * 1_000_000
                + Math.abs(a.bus - b.bus) * 1000L
                + Math.abs(a.device - b.device) * 10L
                + Math.abs(a.function - b.function);
    }

    /// With 8 digits of domain, in lower case.
    @Override
    public String toString() {
        return String.format(Locale.ROOT, "%08x:%02x:%02x.%x", domain, bus, device, function);
    }
}
