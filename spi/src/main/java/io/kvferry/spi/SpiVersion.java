// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi;

/// Version of these contracts: a higher minor only adds (default methods, new enum constants, new
/// optional interfaces); a higher major breaks.
public record SpiVersion(int major, int minor) {
    /// The contracts in this jar.
    public static final SpiVersion CURRENT = new SpiVersion(1, 0);

    public SpiVersion {
        if (major < 0 || minor < 0) {
            throw new IllegalArgumentException("negative SPI version: " + major + "." + minor);
        }
    }

    @Override
    public String toString() {
        return major + "." + minor;
    }

    /// The versions a plugin works with: built against `lowest`, works on every later minor of the
    /// same major.
    public record Range(SpiVersion lowest) {
        /// The range of a plugin compiled against this jar. Do not store it: a plugin names its
        /// numbers itself, so that they are the ones of its build and not of the host.
        public static Range from(int major, int minor) {
            return new Range(new SpiVersion(major, minor));
        }

        public boolean accepts(SpiVersion host) {
            return host.major == lowest.major && host.minor >= lowest.minor;
        }

        @Override
        public String toString() {
            return ">=" + lowest + " <" + (lowest.major + 1) + ".0";
        }
    }
}
