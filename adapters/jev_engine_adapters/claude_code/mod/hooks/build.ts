// From the engine's steps to the conversation that Claude Code is given. No `$` in here.
import type { SessionMessage } from 'claude-code'

export type Step = {
  keep?: number
  merge?: number[]
  without?: string[]
  results?: [number, number, string?][]
  texts?: number[]
}

export type Answer = {
  v: number
  act: 'replace' | 'summarise' | 'skip'
  reason: string
  steps: Step[] | null
  gone?: number[]
  rows?: number
  toast: string
  log: string[]
  stats?: { outcome?: string }
}

// A result that holds more than its text: an image, a document, a list of such.
const holdsMore = (result: unknown): boolean =>
  Array.isArray(result)
    ? result.some(holdsMore)
    : typeof result === 'object' && result !== null && 'type' in result && ['image', 'pdf', 'parts', 'document'].includes(String(result.type))

export const slim = (messages: readonly SessionMessage[]) =>
  messages.map((m, i) => ({
    i,
    role: m.role,
    text: m.text,
    calls: m.toolUses.map(u => ({ id: u.tool_use_id, name: u.tool, input: u.input })),
    results: (m.toolResults ?? []).map(r => ({
      id: r.tool_use_id,
      text: r.text,
      error: r.isError === true,
      ...(holdsMore(r.result) ? { nontext: true } : {}),
    })),
  }))

const row = (messages: readonly SessionMessage[], i: unknown): SessionMessage => {
  const found = typeof i === 'number' ? messages[i] : undefined
  if (!found) throw new Error(`the engine named row ${String(i)} of ${messages.length}`)
  return found
}

// Texts and arguments are taken from the rows themselves: the engine can leave out, shorten and order, never write.
export const build = (messages: readonly SessionMessage[], answer: Answer): SessionMessage[] => {
  if (answer.v !== 1 || !Array.isArray(answer.steps)) throw new Error('the engine speaks another version')
  const used = new Set<number>(answer.gone ?? [])
  const built = answer.steps.map((step): SessionMessage => {
    if (step.keep !== undefined) {
      used.add(step.keep)
      return row(messages, step.keep)
    }
    if (step.merge) {
      const rows = step.merge.map(i => row(messages, i))
      step.merge.forEach(i => used.add(i))
      const out = new Set(step.without ?? [])
      return {
        role: 'assistant',
        text: rows.map(m => m.text).filter(text => text !== '').join('\n'),
        toolUses: rows
          .flatMap(m => m.toolUses)
          .filter(u => !out.has(u.tool_use_id))
          .map(u => ({ tool_use_id: u.tool_use_id, tool: u.tool, input: u.input })),
      }
    }
    const texts = (step.texts ?? []).map(i => row(messages, i).text)
    step.texts?.forEach(i => used.add(i))
    const results = (step.results ?? []).map(([i, place, text]) => {
      const found = row(messages, i).toolResults?.[place]
      if (!found) throw new Error(`the engine named result ${place} of row ${i}`)
      used.add(i)
      return { tool_use_id: found.tool_use_id, text: text ?? found.text, isError: found.isError === true }
    })
    if (results.length === 0 && texts.length === 0) throw new Error('the engine sent an empty step')
    return { role: 'user', text: texts.join('\n'), toolUses: [], ...(results.length ? { toolResults: results } : {}) }
  })
  if (used.size !== messages.length) throw new Error(`the engine accounts for ${used.size} of ${messages.length} rows`)
  return built
}
