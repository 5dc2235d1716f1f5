// Cuts long results and returns everything else by its handle.
import type { Register } from 'claude-code'

export const register: Register = on => {
  on('session.compact', async ($, e) => ({
    messages: e.messages.map(m =>
      m.toolResults?.some(r => r.text.length > 500)
        ? {
            role: m.role,
            text: m.text,
            toolUses: [],
            toolResults: m.toolResults.map(r => ({ ...r, text: r.text.slice(0, 100), result: undefined })),
          }
        : m,
    ),
  }))
}
