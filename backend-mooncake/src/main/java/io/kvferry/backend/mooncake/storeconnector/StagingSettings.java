// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import static io.kvferry.backend.mooncake.storeconnector.MooncakeFile.bad;

import org.jspecify.annotations.Nullable;

import java.util.Locale;
import java.util.Map;
import java.util.Optional;

/// What Mooncake's file and variables say about the staging memory of an owner's disk tier.
///
/// @param bytes by which loads are split; 0 for not
/// @param ratio part of that which is planned with
record StagingSettings(long bytes, double ratio) {
    private static final String STAGING = "MOONCAKE_OFFLOAD_LOCAL_BUFFER_SIZE_BYTES";
    private static final String RATIO = "VLLM_MOONCAKE_DISK_STAGING_USABLE_RATIO";

    static StagingSettings of(Optional<MooncakeFile> file, Map<String, String> environment) {
        return new StagingSettings(
                offloads(file, environment) ? bytes(environment) : 0, ratio(environment));
    }

    /// How loads are split for an owner, or null.
    @Nullable DiskStaging of(String owner) {
        return bytes == 0 ? null : DiskStaging.of(owner, bytes, ratio);
    }

    /// The same for the store of this JVM, which has readers wait by itself.
    @Nullable DiskStaging own() {
        return bytes == 0 ? null : DiskStaging.alone(bytes, ratio);
    }

    /// The variable wins over the file, also where it says no.
    private static boolean offloads(Optional<MooncakeFile> file, Map<String, String> environment) {
        String variable = environment.get("MOONCAKE_ENABLE_OFFLOAD");
        if (variable != null) {
            String word = variable.strip().toLowerCase(Locale.ROOT);
            return word.equals("1") || word.equals("true");
        }
        return file.map(MooncakeFile::offloads).orElse(false);
    }

    private static long bytes(Map<String, String> environment) {
        String text = environment.get(STAGING);
        if (text == null || text.isBlank()) {
            return DiskStaging.DEFAULT_BYTES;
        }
        long bytes = MooncakeFile.parseSize(STAGING, text);
        if (bytes <= 0) {
            throw bad(STAGING + " is " + text + ", which is nothing");
        }
        return bytes;
    }

    private static double ratio(Map<String, String> environment) {
        String text = environment.get(RATIO);
        if (text == null || text.isBlank()) {
            return DiskStaging.DEFAULT_RATIO;
        }
        try {
            double ratio = Double.parseDouble(text.strip());
            if (ratio > 0 && ratio <= 1) {
                return ratio;
            }
        } catch (NumberFormatException _) {
            // as one that is out of range
        }
        throw bad(RATIO + " is " + text + ", not in (0, 1]");
    }
}
