// SPDX-License-Identifier: Apache-2.0
/// What the disk offers to engines: the `DiskConnector` for KV blocks
/// ([io.kvferry.backend.disk.DiskConnectorProvider]) and the `FILE` transfer backend
/// ([io.kvferry.backend.disk.FileBackendProvider]).
@NullMarked
package io.kvferry.backend.disk;

import org.jspecify.annotations.NullMarked;
