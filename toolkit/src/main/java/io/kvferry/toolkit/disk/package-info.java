// SPDX-License-Identifier: Apache-2.0
/// What stores on disk share: system calls that tests can replace
/// ([io.kvferry.toolkit.disk.FileCalls]), threads and deadlines ([io.kvferry.toolkit.disk.IoPool]),
/// aligned memory for O_DIRECT ([io.kvferry.toolkit.disk.AlignedStaging]), folders of their own
/// ([io.kvferry.toolkit.disk.FolderMaker]), and files that become visible whole or not at all
/// ([io.kvferry.toolkit.disk.FilePublisher]). The test jar has calls that fail, stall or die
/// (`FaultInjectingCalls`) and a power cut after any of them (`RecordingCalls`).
///
/// The disk tier of the Mooncake store uses the calls, the staging,
/// [io.kvferry.toolkit.disk.NativeCrc] and [io.kvferry.toolkit.files.PrivateFolder]; only
/// backend-disk uses the rest. The tier's reads belong to their callers, who await them and may
/// leave them behind, so a bounded executor is its pool where [io.kvferry.toolkit.disk.IoPool] has
/// callbacks and no garbage per task. It makes one folder, once, which a power cut soon afterwards
/// may take along with what was cached there, so it does without
/// [io.kvferry.toolkit.disk.FolderMaker].
@NullMarked
package io.kvferry.toolkit.disk;

import org.jspecify.annotations.NullMarked;
